package peering

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What Kopf takes for priorities: of a freeze, and of an operator that is being developed.
const (
	FreezePriority      = 100
	DevelopmentPriority = 666
)

// FreezeOptions say which operators are to pause, and for how long.
type FreezeOptions struct {
	// Name is that of the peering objects in which the operators meet. Required.
	Name string
	// Namespaces are those of the operators, by name; Match, if it is set, picks more from
	// those that there are. Without either, cluster-wide operators are meant.
	Namespaces []string
	Match      func(name string, labels map[string]string) bool
	// ID is under which name it is noted, and ended with Resume. Default: CommandIdentity.
	ID string
	// Priority is up to which, inclusive, operators pause; see FreezePriority. Resume does
	// not use it, nor what follows.
	Priority int
	// Lifetime is how long it lasts if nobody ends it, in whole seconds. Required.
	Lifetime time.Duration
	// Message tells people why.
	Message string
}

// Freeze has operators pause whose priority is not higher, until Resume or until the time is
// over (CLI-6). It returns the peering objects that it is noted in. It is an error if there
// is no kind of them in the cluster, or if one that was asked for by the name of its
// namespace is not there, or none at all.
func Freeze(ctx context.Context, client Client, discovery Discovery, o FreezeOptions) (noted []string, err error) {
	if o.Lifetime < time.Second || o.Lifetime%time.Second != 0 {
		return nil, fmt.Errorf("a lifetime of %s is not a whole number of seconds, one at least", o.Lifetime)
	}
	return o.note(ctx, client, discovery, func() any {
		return record{priority: int64(o.Priority), lifetime: o.Lifetime, lastSeen: time.Now(), message: o.Message}.encode()
	})
}

// Resume ends what Freeze has begun under the same ID. It is no error if it has ended.
func Resume(ctx context.Context, client Client, discovery Discovery, o FreezeOptions) (noted []string, err error) {
	return o.note(ctx, client, discovery, func() any { return nil })
}

// note writes a record to all objects that are meant (CLI-7).
func (o FreezeOptions) note(ctx context.Context, client Client, discovery Discovery, value func() any) (noted []string, err error) {
	if o.Name == "" {
		return nil, errors.New("the name of the peering object is missing")
	}
	if o.ID == "" {
		o.ID = CommandIdentity(ctx)
	}
	clusterWide := o.Match == nil && len(o.Namespaces) == 0
	kinds, err := served(ctx, discovery, clusterWide)
	if err != nil {
		return nil, err
	}
	if len(kinds) == 0 {
		return nil, errors.New(noKind(clusterWide))
	}
	namespaces := []string{""}
	if !clusterWide {
		if namespaces, err = o.namespaces(ctx, client); err != nil {
			return nil, err
		}
	}
	var failures []error
	for _, namespace := range namespaces {
		exists := false
		for _, k := range kinds {
			at := spot{k, namespace, o.Name}
			_, err := at.patch(ctx, client, map[string]any{"status": map[string]any{o.ID: value()}})
			switch {
			case err == nil:
				exists = true
				noted = append(noted, at.String())
			case !apierrors.IsNotFound(err):
				exists = true
				failures = append(failures, fmt.Errorf("%s: %w", at, err))
			}
		}
		if !exists && (clusterWide || slices.Contains(o.Namespaces, namespace)) {
			failures = append(failures, fmt.Errorf("there is no %s: create it, for operators to meet in", spot{kinds[0], namespace, o.Name}))
		}
	}
	if len(noted) == 0 && len(failures) == 0 {
		failures = append(failures, fmt.Errorf("there is no %s named %s in any of the namespaces that match: %s",
			kindName(clusterWide), o.Name, strings.Join(namespaces, ", ")))
	}
	return noted, errors.Join(failures...)
}

// namespaces are those that are named, and those that match.
func (o FreezeOptions) namespaces(ctx context.Context, client Client) ([]string, error) {
	names := slices.Clone(o.Namespaces)
	if o.Match == nil {
		return names, nil
	}
	rest, err := client.REST(corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	var all metav1.PartialObjectMetadataList
	result := rest.Get().Resource("namespaces").Do(ctx)
	if err := result.Error(); err != nil {
		return nil, fmt.Errorf("cannot find out which namespaces there are, name them: %w", err)
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("list of namespaces is not readable: %w", err)
	}
	for _, namespace := range all.Items {
		if !slices.Contains(names, namespace.Name) && o.Match(namespace.Name, namespace.Labels) {
			names = append(names, namespace.Name)
		}
	}
	return names, nil
}
