package owners_test

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/owners"
	"github.com/kopf-go/kopf/typed"
)

// HIE-5
func TestLabel_HIE5_T167(t *testing.T) {
	for name, c := range map[string]struct {
		before, given map[string]string
		options       []owners.LabelOption
		after         map[string]string
	}{
		"none":           {nil, map[string]string{"a": "1"}, nil, map[string]string{"a": "1"}},
		"kept":           {map[string]string{"a": "0", "b": "2"}, map[string]string{"a": "1", "c": "3"}, nil, map[string]string{"a": "0", "b": "2", "c": "3"}},
		"forced":         {map[string]string{"a": "0", "b": "2"}, map[string]string{"a": "1"}, []owners.LabelOption{owners.Forced()}, map[string]string{"a": "1", "b": "2"}},
		"HIE-9: nothing": {map[string]string{"a": "0"}, nil, []owners.LabelOption{owners.Forced()}, map[string]string{"a": "0"}},
		"empty":          {nil, map[string]string{}, nil, nil},
	} {
		for formName, f := range forms(t, metav1.ObjectMeta{Labels: c.before}) {
			t.Run(name+", "+formName, func(t *testing.T) {
				if err := owners.Label(f.given, c.given, c.options...); err != nil {
					t.Fatal(err)
				}
				for _, o := range f.shown {
					same(t, "labels", o.GetLabels(), c.after)
				}
			})
		}
	}
}

// A selector that shares its map with the labels, and the labels of the owner, stay as they are.
func TestLabelsAreNotShared(t *testing.T) {
	common, given := map[string]string{"app": "x"}, map[string]string{"tier": "gold"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Labels: common}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: common}
	d.Spec.Template.Labels = common
	other := &corev1.Pod{}
	if err := owners.Label(owners.Objects{d, other}, given, owners.Nested("spec.template")); err != nil {
		t.Fatal(err)
	}
	d.Labels["later"], other.Labels["later"] = "1", "2"
	same(t, "selector", d.Spec.Selector.MatchLabels, map[string]string{"app": "x"})
	same(t, "given", given, map[string]string{"tier": "gold"})
	same(t, "template", d.Spec.Template.Labels, map[string]string{"app": "x", "tier": "gold"})
}

type (
	fleet     = typed.Resource[fleetSpec, struct{}]
	fleetSpec struct {
		Shared   *inner                            `json:"shared,omitempty"`
		ByName   map[string]corev1.PodTemplateSpec `json:"byName,omitempty"`
		Pointers map[string]*inner                 `json:"pointers,omitempty"`
		Many     []inner                           `json:"many,omitempty"`
		Any      any                               `json:"any,omitempty"`
		Free     map[string]any                    `json:"free,omitempty"`
		Raw      runtime.RawExtension              `json:"raw,omitempty"`
		Size     int                               `json:"size,omitempty"`
		*Embedded
	}
	Embedded struct {
		Deep inner `json:"deep,omitempty"`
	}
	inner struct {
		Metadata *innerMeta `json:"metadata,omitempty"`
		Plain    plain      `json:"plain,omitempty"`
	}
	innerMeta struct {
		Labels labels `json:"labels,omitempty"`
	}
	labels map[string]string
	plain  struct {
		Text string `json:"text,omitempty"`
	}
)

// HIE-5: the same comes out for Go types as for unstructured objects.
func TestNestedLabels_HIE5_T167(t *testing.T) {
	const labelled = `{"metadata":{"labels":{"k":"v"}}}`
	for name, c := range map[string]struct {
		path, spec, want string
	}{
		"there":                   {"spec.shared", `{"shared":{}}`, `{"shared":` + labelled + `}`},
		"with labels":             {"spec.shared", `{"shared":{"metadata":{"labels":{"k":"old","x":"y"}}}}`, `{"shared":{"metadata":{"labels":{"k":"old","x":"y"}}}}`},
		"not there":               {"spec.shared", `{"size":1}`, `{"size":1}`},
		"not there, further down": {"spec.shared.plain.text", `{"size":1}`, `{"size":1}`},
		"entry of a map":          {"spec.pointers.a", `{"pointers":{"a":{},"b":{}}}`, `{"pointers":{"a":` + labelled + `,"b":{}}}`},
		"entry that is none":      {"spec.pointers.a", `{"pointers":{"b":{}}}`, `{"pointers":{"b":{}}}`},
		"all of a list":           {"spec.many", `{"many":[{},{"metadata":{}}]}`, `{"many":[` + labelled + `,` + labelled + `]}`},
		"of any type":             {"spec.any.deep", `{"any":{"deep":{"x":1}}}`, `{"any":{"deep":{"x":1,"metadata":{"labels":{"k":"v"}}}}}`},
		"free":                    {"spec.free.list", `{"free":{"list":[{"metadata":{"labels":{"a":"b"}}},{}]}}`, `{"free":{"list":[{"metadata":{"labels":{"a":"b","k":"v"}}},` + labelled + `]}}`},
		"free, itself":            {"spec.free", `{"free":{"metadata":{"name":"n"}}}`, `{"free":{"metadata":{"name":"n","labels":{"k":"v"}}}}`},
		"embedded":                {"spec.deep", `{"deep":{"plain":{"text":"x"}}}`, `{"deep":{"metadata":{"labels":{"k":"v"}},"plain":{"text":"x"}}}`},
		"embedded, not there":     {"spec.deep", `{"size":1}`, `{"size":1}`},
		"null":                    {"spec.free.x", `{"free":{"x":null}}`, `{"free":{"x":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := `{"kind":"Fleet","apiVersion":"example.com/v1","metadata":{"name":"f"},"spec":` + c.spec + `}`
			want := `{"kind":"Fleet","apiVersion":"example.com/v1","metadata":{"name":"f","labels":{"k":"v"}},"spec":` + c.want + `}`
			typedOne, untyped := &fleet{}, content(t, manifest)
			if err := json.Unmarshal([]byte(manifest), typedOne); err != nil {
				t.Fatal(err)
			}
			if err := owners.Label(owners.Objects{typedOne, untyped}, map[string]string{"k": "v"}, owners.Nested(c.path)); err != nil {
				t.Fatal(err)
			}
			same(t, "unstructured", untyped.Object, content(t, want).Object)
			wanted := &fleet{}
			if err := json.Unmarshal([]byte(want), wanted); err != nil {
				t.Fatal(err)
			}
			same(t, "typed", typedOne, wanted)
		})
	}
}

// Maps of structs are for Go types only: their entries have no address.
func TestNestedLabelsInMapsOfStructs_HIE5(t *testing.T) {
	f := &fleet{Spec: fleetSpec{ByName: map[string]corev1.PodTemplateSpec{"a": {}, "b": {}}}}
	if err := owners.Label(f, map[string]string{"k": "v"}, owners.Nested("spec.byName.a")); err != nil {
		t.Fatal(err)
	}
	same(t, "a", f.Spec.ByName["a"].Labels, map[string]string{"k": "v"})
	same(t, "b", f.Spec.ByName["b"].Labels, map[string]string(nil))
}

func TestNestedLabelsOfKubernetesTypes_HIE5(t *testing.T) {
	job := &batchv1.CronJob{}
	set := &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: make([]corev1.PersistentVolumeClaim, 2)}}
	if err := owners.Label(job, map[string]string{"k": "v"}, owners.Nested("spec.jobTemplate", "spec.jobTemplate.spec.template")); err != nil {
		t.Fatal(err)
	}
	if err := owners.Label(set, map[string]string{"k": "v"}, owners.Nested("spec.volumeClaimTemplates"), owners.Nested("spec.template"), owners.Forced()); err != nil {
		t.Fatal(err)
	}
	for _, got := range []map[string]string{
		job.Labels, job.Spec.JobTemplate.Labels, job.Spec.JobTemplate.Spec.Template.Labels,
		set.Labels, set.Spec.Template.Labels, set.Spec.VolumeClaimTemplates[0].Labels, set.Spec.VolumeClaimTemplates[1].Labels,
	} {
		same(t, "labels", got, map[string]string{"k": "v"})
	}
}

// A path that cannot be is an error, and the object stays as it was.
func TestNestedPathsThatCannotBe_HIE5(t *testing.T) {
	deployment := func() owners.Object { return &appsv1.Deployment{} }
	object := func(spec fleetSpec) func() owners.Object {
		return func() owners.Object { return &fleet{Spec: spec} }
	}
	for name, c := range map[string]struct {
		object func() owners.Object
		path   string
		want   string
	}{
		"misspelt":            {deployment, "spec.templat", `did you mean "template"?`},
		"empty":               {deployment, "", "is empty"},
		"without metadata":    {deployment, "spec", "DeploymentSpec has no metadata with labels"},
		"a text":              {deployment, "spec.template.spec.nodeName", "string has no metadata with labels"},
		"in a number":         {object(fleetSpec{Size: 1}), "spec.size.x", "int has no fields"},
		"raw":                 {object(fleetSpec{}), "spec.raw", "no metadata with labels"},
		"in raw":              {object(fleetSpec{}), "spec.raw.x", "cannot be looked into"},
		"a struct in any":     {object(fleetSpec{Any: inner{}}), "spec.any", "no metadata with labels"},
		"odd metadata":        {object(fleetSpec{Free: map[string]any{"metadata": 1}}), "spec.free", "its metadata is int"},
		"odd labels":          {object(fleetSpec{Free: map[string]any{"metadata": map[string]any{"labels": "x"}}}), "spec.free", "its labels are string"},
		"odd, unstructured":   {func() owners.Object { return content(t, `{"spec":{"metadata":[]}}`) }, "spec", "its metadata is []"},
		"number in any":       {func() owners.Object { return content(t, `{"spec":{"x":1}}`) }, "spec.x.y", "has no fields"},
		"one element of many": {object(fleetSpec{Any: []any{map[string]any{}, 1}}), "spec.any", "no metadata with labels"},
	} {
		t.Run(name, func(t *testing.T) {
			o, before := c.object(), c.object()
			for what, err := range map[string]error{
				"label": owners.Label(o, map[string]string{"k": "v"}, owners.Nested(c.path)),
				"adopt": owners.Adopt(newOwner(), o, owners.Nested(c.path)),
			} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v, want %s", what, err, c.want)
				}
			}
			same(t, "object", o, before)
		})
	}
}

// HIE-5: of several objects, some have the path, and that is all right.
func TestNestedLabelsOfSomeOfSeveral_HIE5(t *testing.T) {
	d, s := &appsv1.Deployment{}, &corev1.Service{}
	if err := owners.Adopt(newOwner(), owners.Objects{s, d}, owners.Nested("spec.template")); err != nil {
		t.Fatal(err)
	}
	same(t, "template", d.Spec.Template.Labels, newOwner().Labels)
	same(t, "service", s.Labels, newOwner().Labels)
	err := owners.Adopt(newOwner(), owners.Objects{s, &corev1.ConfigMap{}}, owners.Nested("spec.template"))
	if err == nil || !strings.Contains(err.Error(), "Service office/boss-*: nested path spec.template: no field") || !strings.Contains(err.Error(), "ConfigMap") {
		t.Errorf("got %v", err)
	}
}

func TestNestedLabelsOfNothing(t *testing.T) {
	u := &unstructured.Unstructured{}
	if err := owners.Label(u, map[string]string{"k": "v"}, owners.Nested("spec.template")); err != nil {
		t.Fatal(err)
	}
	same(t, "object", u.Object, map[string]any{"metadata": map[string]any{"labels": map[string]any{"k": "v"}}})
}
