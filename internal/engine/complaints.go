package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/stream"
)

// complaints posts Warning events on objects that cannot be handled, so that who
// looks at the object learns why. Best effort: when there are too many, or they
// cannot be posted, they are dropped, for all of them are in the log.
type complaints struct {
	client *stream.Client
	log    *slog.Logger
	queue  chan *corev1.Event
}

func newComplaints(client *stream.Client, log *slog.Logger) *complaints {
	return &complaints{client: client, log: log, queue: make(chan *corev1.Event, 100)}
}

// The reasons of complaints, as they are in events.
const (
	undecodable = "Undecodable" // into a handler's Go type
	looping     = "Looping"
	pruned      = "Pruned" // the API server does not keep what is written
)

// complain logs and posts that an object cannot be handled: once, until there is
// something else to complain of.
func (e *Engine) complain(o *object, b *body.Body, reason string, err error) {
	if !o.kind.unheard(o, err.Error()) {
		return
	}
	if reason == undecodable {
		o.log().Error("object cannot be handled until it is changed", "error", err)
	} else {
		o.log().Error("object is handled, but not as it should be", "reason", reason, "error", err)
	}
	metrics.Complaints.WithLabelValues(resourceName(o.kind.resource.GVR), reason).Inc()
	now := metav1.NewTime(time.Now())
	namespace := b.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	event := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "kopf-event-", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: b.APIVersion, Kind: b.Kind, Name: b.Name, Namespace: b.Namespace,
			UID: types.UID(b.UID), ResourceVersion: b.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: err.Error(), Action: "Handling",
		FirstTimestamp: now, LastTimestamp: now, EventTime: metav1.NewMicroTime(now.Time), Count: 1,
		ReportingController: "kopf", ReportingInstance: "kopf", Source: corev1.EventSource{Component: "kopf"},
	}
	select {
	case e.events.queue <- event:
	default:
	}
}

// run posts until the context ends.
func (c *complaints) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-c.queue:
			if err := c.post(ctx, event); err != nil {
				c.log.Debug("event could not be posted", "error", err)
			}
		}
	}
}

func (c *complaints) post(ctx context.Context, event *corev1.Event) error {
	rest, err := c.client.REST(corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(event)
	if err != nil {
		return err
	}
	return rest.Post().Namespace(event.Namespace).Resource("events").Body(raw).Do(ctx).Error()
}
