package registry

import (
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/body"
)

// Call is one invocation of a handler: everything that its typed argument is
// made from. It belongs to that invocation alone.
type Call struct {
	Body     *body.Body
	Identity bool // the body knows only who the object was
	Resource schema.GroupVersionResource
	Type     string // of the event: listed, added, modified, deleted
	Reason   string

	Old        []byte    // JSON of the last-handled essence; nil if there is none
	OldUnknown bool      // there is one, but it was too large to be kept
	Diff       diff.Diff // of the essences, reduced to the handler's field
	// The values at the handler's field.
	OldValue, NewValue any
	HadOld, HasNew     bool

	Retry   int
	Started time.Time
	Param   any
	Log     *slog.Logger
	Patch   *Edits
	Result  any // what the handler stored with SetResult

	Subhandlers *Subhandlers // of change handlers

	Memos   func() *Memos        // of the object
	Entries func(indexing.Owner) // of index handlers: what takes their entries into the index; nil: what is there stays
	Live    *Live                // of daemons
	Stopped <-chan struct{}      // of daemons: closed when they are told to stop

	Admission *Admission // of admission handlers
	Activity  *Activity  // of handlers of activities; they have no object

	// May tells whether the function may be called, as the last thing before it is. nil: it may.
	May func() error
}

// Enter is right before the function is called, when all that takes time is done: by then
// the operator may have lost the right to call it. An error means that it has.
func (c *Call) Enter() error {
	if c.May == nil {
		return nil
	}
	return c.May()
}

// Activity is what handlers of activities get beside what all get. The types are those of
// package activities, which is above this one.
type Activity struct {
	Settings any                 // *settings.Settings
	Default  func() (any, error) // *activities.Credentials: what there is without login handlers
}

// DecodeError says that an object does not decode into a handler's Go type.
type DecodeError struct {
	Type reflect.Type
	Err  error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("object does not decode into %s: %v", e.Type, e.Err)
}

// Unwrap returns what the decoder said.
func (e *DecodeError) Unwrap() error { return e.Err }
