package webhook

import (
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestOwnUserIsAServiceAccount(t *testing.T) {
	for name, want := range map[string]string{"system:serviceaccount:ns:op": "system:serviceaccount:ns:op", "admin": ""} {
		server := fake.NewClientset()
		server.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			review := &authenticationv1.SelfSubjectReview{}
			review.Status.UserInfo.Username = name
			return true, review, nil
		})
		if got, err := OwnUser(t.Context(), server.AuthenticationV1()); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	server, broken := fake.NewClientset(), errors.New("broken")
	server.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
	if _, err := OwnUser(t.Context(), server.AuthenticationV1()); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
