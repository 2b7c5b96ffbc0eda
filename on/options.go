package on

import (
	"fmt"
	"reflect"

	"github.com/kopf-go/kopf/internal/registry"
)

// The option types say which kinds of handlers take an option: what a kind does
// not take does not compile.
type (
	// CreateOption is an option of Create.
	CreateOption interface{ create(*draft) }
	// UpdateOption is an option of Update.
	UpdateOption interface{ update(*draft) }
	// DeleteOption is an option of Delete.
	DeleteOption interface{ delete(*draft) }
	// ResumeOption is an option of Resume.
	ResumeOption interface{ resume(*draft) }
	// FieldChangeOption is an option of FieldChange.
	FieldChangeOption interface{ fieldChange(*draft) }
	// EventOption is an option of Event.
	EventOption interface{ event(*draft) }
	// IndexOption is an option of Index.
	IndexOption interface{ index(*draft) }
	// DaemonOption is an option of Daemon.
	DaemonOption interface{ daemon(*draft) }
	// TimerOption is an option of Timer.
	TimerOption interface{ timer(*draft) }
	// ValidateOption is an option of Validate.
	ValidateOption interface{ validate(*draft) }
	// MutateOption is an option of Mutate.
	MutateOption interface{ mutate(*draft) }
	// PolicyOption is an option of ValidateCEL.
	PolicyOption interface{ policy(*draft) }
	// SubhandlerOption is an option of Subhandler and Subhandlers.
	SubhandlerOption interface{ subhandler(*draft) }
	// ActivityOption is an option of Startup, Cleanup, Login and Probe.
	ActivityOption interface{ activity(*draft) }
)

// Options that several kinds take.
type (
	// AttemptOption is an option of every handler that can be tried again: all but Event,
	// Validate and Mutate.
	AttemptOption interface {
		CreateOption
		UpdateOption
		DeleteOption
		ResumeOption
		FieldChangeOption
		IndexOption
		BackgroundOption
		SubhandlerOption
		ActivityOption
	}
	// FieldOption is an option of every handler that has no field of its own: all but
	// FieldChange.
	FieldOption interface {
		CreateOption
		UpdateOption
		DeleteOption
		ResumeOption
		EventOption
		IndexOption
		BackgroundOption
		AdmissionOption
		SubhandlerOption
	}
	// UpdatedOption is an option of handlers that know an old and a new value.
	UpdatedOption interface {
		UpdateOption
		FieldChangeOption
		SubhandlerOption
	}
	// BackgroundOption is an option of Daemon and Timer.
	BackgroundOption interface {
		DaemonOption
		TimerOption
	}
	// AdmissionOption is an option of Validate and Mutate.
	AdmissionOption interface {
		ValidateOption
		MutateOption
	}
	// RequestOption is an option of Validate, Mutate and ValidateCEL.
	RequestOption interface {
		AdmissionOption
		PolicyOption
	}
	// UsesOption is an option of handlers that a change of an index can call again.
	UsesOption interface {
		CreateOption
		UpdateOption
		DeleteOption
		ResumeOption
		FieldChangeOption
		TimerOption
	}
	// AnyOption is an option of every handler that is registered for a resource.
	AnyOption interface {
		CreateOption
		UpdateOption
		DeleteOption
		ResumeOption
		FieldChangeOption
		EventOption
		IndexOption
		BackgroundOption
		AdmissionOption
	}
	// SelectionOption is an option of everything that is registered for a resource.
	SelectionOption interface {
		AnyOption
		PolicyOption
	}
	// CommonOption is an option of every handler for objects, sub-handlers included.
	CommonOption interface {
		AnyOption
		SubhandlerOption
	}
	// IDOption is an option of every handler with an id of the user's choice.
	IDOption interface {
		AnyOption
		ActivityOption
	}
	// ParamOption is an option of every function.
	ParamOption interface {
		CommonOption
		ActivityOption
	}
	// InOption is an option of everything that goes into a registry.
	InOption interface {
		SelectionOption
		ActivityOption
	}
	// LabelOption is an option of everything that can be for some objects only.
	LabelOption interface {
		CommonOption
		PolicyOption
	}
)

// draft is a registration in the making.
type draft struct {
	*registry.Handler
	selection
	registry *registry.Registry
	id       string
	snapshot reflect.Type // of on.When's T
	value    any          // as the user gave them; nil: none
	old, new any
	given    map[string]bool // options that can be given once, or exclude others
	mistakes []error
	inside   bool // of another handler
}

func (d *draft) mistake(format string, args ...any) {
	d.mistakes = append(d.mistakes, fmt.Errorf(format, args...))
}

// give notes that an option is given, which can be given once.
func (d *draft) give(option string) {
	if d.given[option] {
		d.mistake("%s is given twice", option)
	}
	if d.given == nil {
		d.given = map[string]bool{}
	}
	d.given[option] = true
}

// setting is every option: the exported functions narrow it to the interfaces.
type setting func(*draft)

func (s setting) create(d *draft)      { s(d) }
func (s setting) update(d *draft)      { s(d) }
func (s setting) delete(d *draft)      { s(d) }
func (s setting) resume(d *draft)      { s(d) }
func (s setting) fieldChange(d *draft) { s(d) }
func (s setting) event(d *draft)       { s(d) }
func (s setting) index(d *draft)       { s(d) }
func (s setting) daemon(d *draft)      { s(d) }
func (s setting) timer(d *draft)       { s(d) }
func (s setting) validate(d *draft)    { s(d) }
func (s setting) mutate(d *draft)      { s(d) }
func (s setting) policy(d *draft)      { s(d) }
func (s setting) subhandler(d *draft)  { s(d) }
func (s setting) activity(d *draft)    { s(d) }

// ID names the handler in logs, in the progress kept on objects and in their
// status. It must stay the same across releases, or handlers in the middle of
// their work begin anew (HID-4). Default: the function's name, without its
// package, such as provision or Handlers.Provision. A function literal has no name
// of its own: what the compiler calls it, such as main.func1, changes with the code
// around it, so give it an ID. With a field, the field is appended: ID/spec.replicas
// (HID-2), but not for Index. Of Validate and Mutate, what the API server is told is named
// after it, too.
func ID(id string) IDOption {
	return setting(func(d *draft) {
		if id == "" {
			d.mistake("on.ID is empty")
		}
		d.id = id
	})
}

// Param is handed to the function as it is, so that one function can be registered
// several times, under different ids (MEM-7).
func Param(value any) ParamOption {
	return setting(func(d *draft) { d.Param = value })
}

// In registers the handler in a registry of one's own instead of the default one.
func In(r *registry.Registry) InOption {
	return setting(func(d *draft) {
		if r == nil {
			d.mistake("on.In got no registry: make one with kopf.NewRegistry")
			return
		}
		d.registry = r
	})
}

// Deleted lets a resume handler also be called for objects that are being deleted
// (CHG-5).
func Deleted() ResumeOption {
	return setting(func(d *draft) { d.Deleted = true })
}

// Optional keeps a delete handler from holding the object with a finalizer. It is
// called when something else holds the object, else once the object is gone; then
// best effort, for nothing is left to keep its progress on.
func Optional() DeleteOption {
	return setting(func(d *draft) { d.Optional = true })
}
