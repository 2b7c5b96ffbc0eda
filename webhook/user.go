package webhook

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// OwnUser asks the API server who the operator is for it, for [Options]. It says so only
// of service accounts: during development, the operator is the same user as who tries its
// webhooks out.
func OwnUser(ctx context.Context, client authenticationclient.SelfSubjectReviewsGetter) (string, error) {
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("finding out who the operator is for the API server: %w", err)
	}
	if name := review.Status.UserInfo.Username; strings.HasPrefix(name, "system:serviceaccount:") {
		return name, nil
	}
	return "", nil
}
