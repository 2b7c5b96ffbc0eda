package owners_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/owners"
)

var bossReference = metav1.OwnerReference{
	APIVersion: "apps/v1", Kind: "Deployment", Name: "boss", UID: "u-boss", Controller: new(true), BlockOwnerDeletion: new(true),
}

// HIE-1, HIE-3: in place, whatever the form; what is nil is passed over.
func TestAppendReference_HIE1_HIE3_T167(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u-n"}
	for name, f := range forms(t, metav1.ObjectMeta{Name: "p", Namespace: "office", OwnerReferences: []metav1.OwnerReference{other}}) {
		t.Run(name, func(t *testing.T) {
			for times := range 2 { // an owner that is there is not added again
				if err := owners.AppendReference(newOwner(), f.given); err != nil {
					t.Fatal(err)
				}
				for _, o := range f.shown {
					same(t, fmt.Sprint(times), o.GetOwnerReferences(), []metav1.OwnerReference{other, bossReference})
				}
			}
		})
	}
}

// HIE-3: a reference with the same UID stays as it is, whatever else is in it.
func TestAppendReferenceKeepsTheOneWithTheUID_HIE3(t *testing.T) {
	old := metav1.OwnerReference{APIVersion: "v1", Kind: "Old", Name: "old", UID: "u-boss"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{old}}}
	if err := owners.AppendReference(newOwner(), pod); err != nil {
		t.Fatal(err)
	}
	same(t, "references", pod.OwnerReferences, []metav1.OwnerReference{old})
}

func TestAppendReferenceOptions_HIE3(t *testing.T) {
	client := newOwner(func(o *appsv1.Deployment) { o.TypeMeta = metav1.TypeMeta{} })
	pod := &corev1.Pod{}
	if err := owners.AppendReference(client, pod, owners.NotController(), owners.NotBlocking(),
		owners.OwnerKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))); err != nil {
		t.Fatal(err)
	}
	want := bossReference
	want.Controller, want.BlockOwnerDeletion = nil, nil
	same(t, "references", pod.OwnerReferences, []metav1.OwnerReference{want})
}

// HIE-2: the owner is named, and has to be one.
func TestOwnersThatAreNone_HIE2_HIE10_T167(t *testing.T) {
	for name, c := range map[string]struct {
		owner owners.Object
		want  string
	}{
		"nothing":            {nil, "there is no owner"},
		"nil":                {(*appsv1.Deployment)(nil), "there is no owner"},
		"not created yet":    {newOwner(func(o *appsv1.Deployment) { o.UID = "" }), "Deployment office/boss cannot be an owner: it has no UID"},
		"without a name":     {newOwner(func(o *appsv1.Deployment) { o.Name = "" }), "Deployment without a name cannot be an owner: it has no name"},
		"read by a client":   {newOwner(func(o *appsv1.Deployment) { o.TypeMeta = metav1.TypeMeta{} }), "say it with OwnerKind"},
		"without apiVersion": {newOwner(func(o *appsv1.Deployment) { o.APIVersion = "" }), "no apiVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			_, refErr := owners.Reference(c.owner)
			for what, err := range map[string]error{
				"reference": refErr, "append": owners.AppendReference(c.owner, pod), "adopt": owners.Adopt(c.owner, pod),
			} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v, want %s", what, err, c.want)
				}
			}
			same(t, "object", pod, &corev1.Pod{})
		})
	}
	if err := owners.RemoveReference(nil, &corev1.Pod{}); err == nil {
		t.Error("a reference to nobody was removed")
	}
}

// HIE-10
func TestReferences_HIE10(t *testing.T) {
	ref, err := owners.Reference(newOwner())
	if err != nil {
		t.Fatal(err)
	}
	same(t, "owner reference", ref, bossReference)
	same(t, "object reference", owners.ObjectReference(newOwner()),
		corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "boss", Namespace: "office", UID: "u-boss"})
	same(t, "of nothing", owners.ObjectReference(nil), corev1.ObjectReference{})
	same(t, "of little", owners.ObjectReference(&corev1.Node{}), corev1.ObjectReference{})
}

// HIE-4
func TestRemoveReference_HIE4_T167(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u-n"}
	renamed := bossReference
	renamed.Name = "called something else once"
	before := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{bossReference, other, renamed}}
	for name, f := range forms(t, before) {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				if err := owners.RemoveReference(newOwner(), f.given); err != nil {
					t.Fatal(err)
				}
				for _, o := range f.shown {
					same(t, "references", o.GetOwnerReferences(), []metav1.OwnerReference{other})
				}
			}
		})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{bossReference}}}
	if err := owners.RemoveReference(newOwner(), pod); err != nil || pod.OwnerReferences == nil || len(pod.OwnerReferences) != 0 {
		t.Errorf("%v, references: %v", err, pod.OwnerReferences)
	}
	untouched := content(t, `{"metadata":{"name":"x"}}`)
	if err := owners.RemoveReference(newOwner(), untouched); err != nil || len(untouched.Object["metadata"].(map[string]any)) != 1 {
		t.Errorf("%v, object: %v", err, untouched.Object)
	}
}

// What Kubernetes would remove for its reference does not get one; the others do.
func TestOwnersThatWouldNotBeFound(t *testing.T) {
	elsewhere := metav1.ObjectMeta{Name: "x", Namespace: "elsewhere"}
	clusterWide := newOwner(inNamespace(""))
	for name, c := range map[string]struct {
		owner  owners.Object
		object owners.Object
		fails  string
	}{
		"same namespace":                   {newOwner(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "office"}}, ""},
		"not known yet":                    {newOwner(), &corev1.Pod{}, ""},
		"another namespace":                {newOwner(), &corev1.Pod{ObjectMeta: elsewhere}, "Pod elsewhere/x: the owner, Deployment office/boss, is in another namespace than the object, which is in namespace elsewhere"},
		"known to be in none":              {newOwner(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, "ClusterRole x: the owner, Deployment office/boss, is in another namespace than the object, which is in no namespace"},
		"known by its kind":                {newOwner(), content(t, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole"}`), "in no namespace"},
		"a kind of another group":          {newOwner(), content(t, `{"apiVersion":"example.com/v1","kind":"ClusterRole"}`), ""},
		"of no namespace, any namespace":   {clusterWide, &corev1.Pod{ObjectMeta: elsewhere}, ""},
		"of no namespace, no namespace":    {clusterWide, &apiextensionsv1.CustomResourceDefinition{}, ""},
		"another controller":               {newOwner(), controlled("u-other"), "it is controlled by Job other already"},
		"the same controller, once called": {newOwner(), controlled("u-boss"), ""},
		"itself":                           {newOwner(), newOwner(), "its own owner"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.object.DeepCopyObject()
			good := &corev1.Pod{}
			err := owners.AppendReference(c.owner, owners.Objects{c.object, good})
			if len(good.OwnerReferences) != 1 {
				t.Error("another object has no reference")
			}
			if c.fails == "" {
				if err != nil || len(c.object.GetOwnerReferences()) != 1 {
					t.Errorf("%v, references: %v", err, c.object.GetOwnerReferences())
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("got %v, want %s", err, c.fails)
			}
			same(t, "object", c.object, before)
		})
	}
	if err := owners.AppendReference(newOwner(), controlled("u-other"), owners.NotController()); err != nil {
		t.Error(err)
	}
}

func controlled(by types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", Name: "other", UID: by, Controller: new(true)},
	}}}
}

// HIE-1: what is no object is an error.
func TestNoObjects_HIE1(t *testing.T) {
	for name, o := range map[string]runtime.Object{"status": &metav1.Status{}, "review": &corev1.ObjectReference{}} {
		if err := owners.Adopt(newOwner(), o); err == nil || !strings.Contains(err.Error(), "no metadata") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// HIE-6
func TestHarmonizeNaming_HIE6_T167(t *testing.T) {
	type naming struct{ name, prefix string }
	for name, c := range map[string]struct {
		before  naming
		options []owners.NamingOption
		after   naming
	}{
		"nothing":                {naming{}, nil, naming{"", "boss-"}},
		"strict":                 {naming{}, []owners.NamingOption{owners.Strict()}, naming{"boss", ""}},
		"named":                  {naming{"n", ""}, nil, naming{"n", ""}},
		"named, strict":          {naming{"n", ""}, []owners.NamingOption{owners.Strict()}, naming{"n", ""}},
		"named, forced":          {naming{"n", ""}, []owners.NamingOption{owners.Forced()}, naming{"", "boss-"}},
		"named, forced, strict":  {naming{"n", ""}, []owners.NamingOption{owners.Forced(), owners.Strict()}, naming{"boss", ""}},
		"prefix":                 {naming{"", "p-"}, nil, naming{"", "p-"}},
		"prefix, strict":         {naming{"", "p-"}, []owners.NamingOption{owners.Strict()}, naming{"", "p-"}},
		"prefix, forced":         {naming{"", "p-"}, []owners.NamingOption{owners.Forced()}, naming{"", "boss-"}},
		"prefix, forced, strict": {naming{"", "p-"}, []owners.NamingOption{owners.Strict(), owners.Forced()}, naming{"boss", ""}},
	} {
		for formName, f := range forms(t, metav1.ObjectMeta{Name: c.before.name, GenerateName: c.before.prefix}) {
			t.Run(name+", "+formName, func(t *testing.T) {
				if err := owners.HarmonizeNaming(f.given, "boss", c.options...); err != nil {
					t.Fatal(err)
				}
				for _, o := range f.shown {
					same(t, "names", naming{o.GetName(), o.GetGenerateName()}, c.after)
				}
			})
		}
	}
}

// HIE-6, HIE-9: without a name there is none to go by.
func TestHarmonizeNamingWithoutName_HIE6_HIE9(t *testing.T) {
	pod := &corev1.Pod{}
	if err := owners.HarmonizeNaming(pod, ""); err == nil {
		t.Error("no error")
	}
	same(t, "object", pod, &corev1.Pod{})
}

// HIE-7, HIE-9
func TestAdjustNamespace_HIE7_HIE9_T167(t *testing.T) {
	for name, c := range map[string]struct {
		before, given string
		options       []owners.NamespaceOption
		after         string
	}{
		"none":              {"", "office", nil, "office"},
		"set":               {"home", "office", nil, "home"},
		"set, forced":       {"home", "office", []owners.NamespaceOption{owners.Forced()}, "office"},
		"set, none":         {"home", "", nil, "home"},
		"set, none, forced": {"home", "", []owners.NamespaceOption{owners.Forced()}, ""},
		"none, none":        {"", "", nil, ""},
	} {
		for formName, f := range forms(t, metav1.ObjectMeta{Namespace: c.before}) {
			t.Run(name+", "+formName, func(t *testing.T) {
				if err := owners.AdjustNamespace(f.given, c.given, c.options...); err != nil {
					t.Fatal(err)
				}
				for _, o := range f.shown {
					same(t, "namespace", o.GetNamespace(), c.after)
				}
			})
		}
	}
	role := &rbacv1.ClusterRole{}
	if err := owners.AdjustNamespace(role, "office", owners.Forced()); err != nil || role.Namespace != "" {
		t.Errorf("%v, a ClusterRole is in namespace %q", err, role.Namespace)
	}
}
