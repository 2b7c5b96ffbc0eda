package owners_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kopf-go/kopf/owners"
)

// HIE-8: all of it at once.
func TestAdopt_HIE8_T167(t *testing.T) {
	for name, c := range map[string]struct {
		before  metav1.ObjectMeta
		options []owners.AdoptOption
		after   metav1.ObjectMeta
	}{
		"new": {metav1.ObjectMeta{}, nil,
			metav1.ObjectMeta{GenerateName: "boss-", Namespace: "office", Labels: map[string]string{"app": "boss", "tier": "gold"}}},
		"strict": {metav1.ObjectMeta{}, []owners.AdoptOption{owners.Strict()},
			metav1.ObjectMeta{Name: "boss", Namespace: "office", Labels: map[string]string{"app": "boss", "tier": "gold"}}},
		"with its own": {metav1.ObjectMeta{Name: "n", Namespace: "office", Labels: map[string]string{"app": "child", "x": "y"}}, nil,
			metav1.ObjectMeta{Name: "n", Namespace: "office", Labels: map[string]string{"app": "child", "tier": "gold", "x": "y"}}},
		"forced": {metav1.ObjectMeta{Name: "n", Namespace: "elsewhere", Labels: map[string]string{"app": "child", "x": "y"}}, []owners.AdoptOption{owners.Forced()},
			metav1.ObjectMeta{GenerateName: "boss-", Namespace: "office", Labels: map[string]string{"app": "boss", "tier": "gold", "x": "y"}}},
		"forced, strict": {metav1.ObjectMeta{GenerateName: "n-"}, []owners.AdoptOption{owners.Forced(), owners.Strict()},
			metav1.ObjectMeta{Name: "boss", Namespace: "office", Labels: map[string]string{"app": "boss", "tier": "gold"}}},
	} {
		c.after.OwnerReferences = []metav1.OwnerReference{bossReference}
		for formName, f := range forms(t, c.before) {
			t.Run(name+", "+formName, func(t *testing.T) {
				owner := newOwner()
				if err := owners.Adopt(owner, f.given, c.options...); err != nil {
					t.Fatal(err)
				}
				for _, o := range f.shown {
					same(t, "metadata", metaOf(o), c.after)
				}
				same(t, "owner", owner, newOwner())
			})
		}
	}
}

// What cannot be adopted stays as it was, and the others are adopted.
func TestAdoptSome(t *testing.T) {
	astray := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "elsewhere"}}
	before, good, role := astray.DeepCopy(), &corev1.Pod{}, &rbacv1.ClusterRole{}
	err := owners.Adopt(newOwner(), owners.Objects{astray, role, good})
	if err == nil || !strings.Contains(err.Error(), "Pod elsewhere/p: ") || !strings.Contains(err.Error(), "ClusterRole without a name: ") {
		t.Errorf("got %v", err)
	}
	same(t, "pod", astray, before)
	same(t, "role", role, &rbacv1.ClusterRole{})
	same(t, "references of the other", good.OwnerReferences, []metav1.OwnerReference{bossReference})
}

// HIE-7, HIE-8: of an owner that is in no namespace, children are wherever they are.
func TestAdoptByOwnerWithoutNamespace_HIE7_HIE8(t *testing.T) {
	owner := newOwner(inNamespace(""))
	there, none, role := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "there"}}, &corev1.Pod{}, &rbacv1.ClusterRole{}
	if err := owners.Adopt(owner, owners.Objects{there, none, role}); err != nil {
		t.Fatal(err)
	}
	if there.Namespace != "there" || none.Namespace != "" || role.Namespace != "" || len(role.OwnerReferences) != 1 {
		t.Errorf("namespaces %q, %q, %q", there.Namespace, none.Namespace, role.Namespace)
	}
	if err := owners.Adopt(owner, there, owners.Forced()); err != nil || there.Namespace != "" {
		t.Errorf("%v, namespace %q", err, there.Namespace)
	}
}

// Adopting twice is adopting once, and no order of steps makes another difference, whatever
// is there before and however it is done.
func TestAdoptTwiceIsOnce(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
		var options []owners.AdoptOption
		for _, o := range []owners.AdoptOption{owners.Forced(), owners.Strict(), owners.Nested("spec.template"), owners.NotController(), owners.NotBlocking()} {
			if r.IntN(2) == 0 {
				options = append(options, o)
			}
		}
		owner := newOwner(inNamespace(pick("", "office")))
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Name: pick("", "n"), GenerateName: pick("", "g-"), Namespace: pick("", "office"),
			Labels: map[string]string{pick("app", "x"): "1"},
		}}
		d.Spec.Template.Labels = map[string]string{pick("tier", "x"): "2"}
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			t.Fatal(err)
		}
		u := content(t, `{}`)
		u.Object = raw

		both := owners.Objects{d, u}
		if err := owners.Adopt(owner, both, options...); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		once := both.DeepCopyObject()
		if err := owners.Adopt(owner, both, options...); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		same(t, fmt.Sprintf("seed %d", seed), both, once)
		same(t, fmt.Sprintf("seed %d, unstructured", seed), metaOf(u), metaOf(d))
		if t.Failed() {
			return
		}
	}
}

func TestObjects(t *testing.T) {
	var none owners.Objects
	if none.DeepCopyObject() != nil || !none.GetObjectKind().GroupVersionKind().Empty() {
		t.Error("there is something of nothing")
	}
	pod := &corev1.Pod{}
	copies := owners.Objects{pod, nil}.DeepCopyObject().(owners.Objects)
	if copies[0] == pod || copies[1] != nil {
		t.Errorf("copies: %v", copies)
	}
}
