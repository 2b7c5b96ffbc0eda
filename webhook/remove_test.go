package webhook

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// What the keeper has made goes, persistent or not, and nothing of another operator's.
func TestRemove(t *testing.T) {
	k := keep()
	persistent := validating("a", widgets)
	persistent.Persistent = true
	k.apply(t, "1", persistent, rule)
	other := NewKeeper(k.server.AdmissionregistrationV1(), Options{Name: "other.example.com"}, k.Keeper.log, nil)
	if err := other.Apply(t.Context(), []Hook{validating("b", widgets), rule}, service{}, []byte("1")); err != nil {
		t.Fatal(err)
	}
	k.server.ClearActions()

	remove := func(dryRun bool) []string {
		t.Helper()
		there, err := Remove(t.Context(), k.server.AdmissionregistrationV1(), Options{Name: "example.com"}, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	want := remove(true)
	if len(want) != 3 || want[0] != ofValidating+"/example.com" || len(k.writes()) != 0 {
		t.Errorf("there are %v, written was %v", want, k.writes())
	}
	if got := remove(false); !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
	if got := k.writes(); !slices.Equal(got, []string{"delete " + ofValidating, "delete " + ofBindings, "delete " + ofPolicies}) {
		t.Errorf("writes %v", got)
	}
	if got := remove(false); len(got) != 0 {
		t.Errorf("the second time there are %v", got)
	}
	if there, err := Remove(t.Context(), k.server.AdmissionregistrationV1(), Options{Name: "other.example.com"}, true); err != nil || len(there) != 3 {
		t.Errorf("of the other operator there are %v, %v", there, err)
	}
}

func TestRemoveNamesMissingPermissions(t *testing.T) {
	k := keep()
	k.apply(t, "1", validating("a", widgets))
	k.server.PrependReactor("delete", ofValidating, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: ofValidating}, "example.com", nil)
	})
	if _, err := Remove(t.Context(), k.server.AdmissionregistrationV1(), Options{Name: "example.com"}, false); !apierrors.IsForbidden(err) {
		t.Errorf("error %v", err)
	}
}
