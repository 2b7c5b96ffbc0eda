package engine

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/internal/registry"
)

// The reasons of Warning events on objects, so that who looks at one learns what is the
// matter with it.
const (
	undecodable = "Undecodable" // into a handler's Go type
	looping     = "Looping"
	pruned      = "Pruned" // the API server does not keep what is written

	retrying = "Retrying" // a handler has failed, and is called again
	failed   = "Failed"   // for good
)

// complain logs and posts that an object cannot be handled: once, until there is
// something else to complain of.
func (e *Engine) complain(o *object, b *body.Body, reason string, err error) {
	err = o.kind.discreet(err)
	if !o.kind.unheard(o, err.Error()) {
		return
	}
	if reason == undecodable {
		o.log().Error("object cannot be handled until it is changed", "error", err)
	} else {
		o.log().Error("object is handled, but not as it should be", "reason", reason, "error", err)
	}
	o.kind.meter.Complain(reason)
	o.complained(reason, err)
	e.post(about(b), reason, err.Error())
}

// discreet is an error without what a decoder says of sensitive values.
func (k *kind) discreet(err error) error {
	if undecoded := (*registry.DecodeError)(nil); k.sensitive && errors.As(err, &undecoded) {
		return fmt.Errorf("object does not decode into %s; why is not told, for there are sensitive values in it", undecoded.Type)
	}
	return err
}

// failure posts that a handler has failed, if that is wanted.
func (o *object) failure(h *registry.Handler, out outcome.Outcome) {
	if !o.kind.engine.Recorder.Config().Failures || out.Err == nil || out.Waiting {
		return
	}
	reason := retrying
	if out.Final {
		reason = failed
	}
	o.kind.engine.post(o.reference(), reason, h.Name()+": "+out.Err.Error())
}

// post posts a Warning event. What the operator has to say itself has no level.
func (e *Engine) post(about corev1.ObjectReference, reason, message string) {
	if e.current() == nil { // whoever leads says the same
		return
	}
	err := e.Recorder.Post(recording.Event{
		About: about, Type: corev1.EventTypeWarning, Reason: reason, Message: message, Level: recording.Always,
	})
	if err != nil {
		e.log.Debug("event is not posted", "error", err)
	}
}

// about names a version of an object.
func about(b *body.Body) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: b.APIVersion, Kind: b.Kind, Name: b.Name, Namespace: b.Namespace,
		UID: types.UID(b.UID), ResourceVersion: b.ResourceVersion,
	}
}

// reference names the object, whatever its version is.
func (o *object) reference() corev1.ObjectReference {
	apiVersion, kind := o.kind.resource.GVK.ToAPIVersionAndKind()
	return corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Name: o.name, Namespace: o.namespace, UID: o.uid}
}
