package fieldpath

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestField(t *testing.T) {
	type Lower struct {
		Deep   string `json:"deep"`
		Hidden string `json:"hidden"`
	}
	type Upper struct {
		*Lower
		Other string `json:"hidden"`
	}
	type top struct {
		Res[Common, int]
		*Upper
	}
	there, missing := &top{Upper: &Upper{Lower: &Lower{}}}, &top{}
	for name, c := range map[string]struct {
		in    any
		field string
		want  any // its address; nil: it is not found
	}{
		"its own":              {&there.Spec, "engine", &there.Spec.Engine},
		"named by a tag":       {there, "metadata", &there.ObjectMeta},
		"embedded":             {there, "apiVersion", &there.APIVersion},
		"behind pointers":      {there, "deep", &there.Deep},
		"the one that is seen": {there, "hidden", &there.Other},
		"behind nil":           {missing, "deep", nil},
		"unknown":              {there, "Deep", nil},
		"of Kubernetes":        {new(corev1.PodTemplateSpec), "template", nil},
	} {
		found, ok := FieldNamed(reflect.ValueOf(c.in).Elem(), c.field)
		if ok != (c.want != nil) || ok && found.Addr().Interface() != c.want {
			t.Errorf("%s: got %v, %v", name, found, ok)
		}
	}
	template := &corev1.PodTemplateSpec{}
	metadata, _ := FieldNamed(reflect.ValueOf(template).Elem(), "metadata")
	metadata.Set(reflect.ValueOf(metav1.ObjectMeta{Name: "set"}))
	if template.Name != "set" {
		t.Error("what was found is a copy")
	}
}
