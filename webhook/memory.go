package webhook

import (
	"context"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// inMemory is a place for one Secret of one process.
type inMemory struct {
	mu     sync.Mutex
	secret *corev1.Secret
	writes int
}

var secretsResource = schema.GroupResource{Resource: "secrets"}

func (m *inMemory) Get(_ context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.secret == nil {
		return nil, apierrors.NewNotFound(secretsResource, name.Name)
	}
	return m.secret.DeepCopy(), nil
}

func (m *inMemory) Create(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	return m.Update(ctx, secret)
}

func (m *inMemory) Update(_ context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	m.secret = secret.DeepCopy()
	m.secret.ResourceVersion = strconv.Itoa(m.writes)
	return m.secret.DeepCopy(), nil
}

// Watch tells nothing: nobody else writes here.
func (m *inMemory) Watch(context.Context, types.NamespacedName) (watch.Interface, error) {
	return watch.NewFake(), nil
}
