package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Secrets are the secrets of a cluster, as far as certificates need them. Errors are
// apierrors. Implementations are safe for concurrent use.
type Secrets interface {
	Get(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error)
	Create(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error)
	// Update fails with a conflict if the Secret has another version than this one.
	Update(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error)
	// Watch tells of changes of one Secret from now on, and of what is there at first if it likes.
	Watch(ctx context.Context, name types.NamespacedName) (watch.Interface, error)
}

// SecretsOf are those of a cluster. An httpClient that others use as well saves connections;
// nil makes one from the configuration. Needed on the Secret: get, watch, update; and create.
func SecretsOf(config *rest.Config, httpClient *http.Client) (Secrets, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if httpClient == nil {
		var err error
		if httpClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("cannot connect to the API server with this configuration: %w", err)
		}
	}
	client, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the API server with this configuration: %w", err)
	}
	return clusterSecrets{client: client, options: runtime.NewParameterCodec(scheme)}, nil
}

type clusterSecrets struct {
	client  rest.Interface
	options runtime.ParameterCodec
}

func (s clusterSecrets) Get(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, s.client.Get().Namespace(name.Namespace).Resource("secrets").Name(name.Name).Do(ctx).Into(out)
}

func (s clusterSecrets) Create(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, s.client.Post().Namespace(secret.Namespace).Resource("secrets").Body(secret).Do(ctx).Into(out)
}

func (s clusterSecrets) Update(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, s.client.Put().Namespace(secret.Namespace).Resource("secrets").Name(secret.Name).Body(secret).Do(ctx).Into(out)
}

func (s clusterSecrets) Watch(ctx context.Context, name types.NamespacedName) (watch.Interface, error) {
	seconds := 300 + rand.Int64N(300) // as client-go's informers: not all at once
	return s.client.Get().Namespace(name.Namespace).Resource("secrets").VersionedParams(&metav1.ListOptions{
		Watch:          true,
		FieldSelector:  fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String(),
		TimeoutSeconds: &seconds,
	}, s.options).Watch(ctx)
}

// patience is how long one request may take. What is served meanwhile does not depend on it.
const patience = 30 * time.Second

// explained says what to do about an error that a request for a Secret had.
func explained(err error, verb string, name types.NamespacedName) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("may not %s the secret %s with the webhooks' certificate: the operator's role needs %q on %q in namespace %q: %w",
			verb, name, verb, "secrets", name.Namespace, err)
	default:
		return fmt.Errorf("cannot %s the secret %s with the webhooks' certificate: %w", verb, name, err)
	}
}

// lost tells whether a write was refused because somebody else was faster.
func lost(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

var errNone = errors.New("there is no certificate for webhooks yet")
