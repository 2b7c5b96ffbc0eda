// Package settings holds what can be tuned of an operator, in groups of the names that they
// have in Kopf (SET-2). Zero values stand for the defaults, so a program sets only what it
// wants otherwise:
//
//	kopf.Options{Settings: settings.Settings{Queueing: settings.Queueing{WorkerLimit: 20}}}
package settings

import (
	"time"

	"github.com/kopf-go/kopf/storage"
)

// Settings tune an operator, in groups of the names that they have in Kopf. Zero
// values stand for the defaults.
type Settings struct {
	// Execution is how handlers are called.
	Execution Execution
	// Queueing is how objects are worked on.
	Queueing Queueing
	// Persistence is what is kept on objects.
	Persistence Persistence
	// Networking is about requests.
	Networking Networking
	// Watching is how changes are noticed.
	Watching Watching
	// Scanning is how resources are found.
	Scanning Scanning
	// Endpoints are what is served to those who look after the operator.
	Endpoints Endpoints
	// Admission is how requests come to validating and mutating handlers.
	Admission Admission
	// Process is how the operator ends.
	Process Process
	// Posting is about Kubernetes events.
	Posting Posting
	// Peering is how the operator gets along with others for the same objects.
	Peering Peering
	// LeaderElection is which of several replicas handles changes.
	LeaderElection LeaderElection
}

// Execution says how handlers are called.
type Execution struct {
	// DefaultBackoff is the pause after a failed attempt of a handler that does not
	// say one itself. Default: 1 minute.
	DefaultBackoff time.Duration
	// Lifecycle picks the handlers that are called in one cycle. Default: AllAtOnce.
	Lifecycle Lifecycle
	// CheckpointInterval is how old the success of a handler may become, while other
	// handlers of the same object still run, until it is written down. Default: 1 second.
	CheckpointInterval time.Duration
}

// Queueing says how objects are worked on.
type Queueing struct {
	// WorkerLimit is how many objects are worked on at the same time, not counting
	// those whose handlers are running. Default: 100.
	WorkerLimit int
	// ErrorDelays are the pauses after errors that are not a handler's, such as a
	// refused write: per object, one after the other, the last one repeated. Default:
	// 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377 and 610 seconds (THR-1).
	ErrorDelays []time.Duration
	// LoopLimit is how often an object may be written within LoopWindow although nothing
	// essential has changed in it, or only because the operator itself has changed it;
	// progress of retries does not count. Beyond that there is a Warning event on the
	// object, and it is handled after pauses, those of ErrorDelays. Default: 50.
	LoopLimit int
	// LoopWindow is the time over which LoopLimit counts. Default: 1 minute.
	LoopWindow time.Duration
	// ExitTimeout is how long handlers may go on when the operator stops, after their
	// context has ended; then they are left behind, and named. Default: 10 seconds.
	ExitTimeout time.Duration
}

// Persistence says what is kept on objects, and where. To other names or storages
// all objects are new: do not change them while there are objects, or use storage.Multi
// for a transition (SET-6).
type Persistence struct {
	// Finalizer is what holds an object until its delete handlers are through. Default:
	// kopf.zalando.org/KopfFinalizerMarker, or with Options.Name,
	// NAME.kopf.zalando.org/finalizer (FIN-1).
	Finalizer string
	// ProgressStorage keeps what handlers have come to between attempts and across
	// restarts. Default: storage.Smart under Kopf's prefix, or that of Options.Name (SET-3).
	ProgressStorage storage.Progress
	// DiffBaseStorage keeps the state that was handled last. Default:
	// storage.AnnotationsLastHandled under Kopf's prefix, or that of Options.Name (DB-5).
	DiffBaseStorage storage.LastHandled
	// RecordLimit is the size in bytes from which the state that was handled last is
	// compressed, which costs memory and time at every restart. If it does not fit on the
	// object even so, only digests of its fields are kept, and update handlers are told
	// what has changed, but not from what. Default: 65536.
	RecordLimit int
	// DigestKey makes the digests that stand for sensitive values (see on.Sensitive)
	// useless to those who don't know it. Without it, who can read the object's annotations
	// can try whether a value is the right one. All replicas need the same. A new key makes
	// sensitive values look changed, once. Default: none.
	DigestKey []byte
	// ConsistencyTimeout is how long events are held against an own write that
	// cannot be found among them, for resources whose versions cannot be compared.
	// Default: 5 seconds (CON-1).
	ConsistencyTimeout time.Duration
}

// Networking is about requests.
type Networking struct {
	// RequestTimeout limits each write. Default: 30 seconds.
	RequestTimeout time.Duration
}

// Watching says how changes are noticed.
type Watching struct {
	// InactivityTimeout is for how long nothing, not even a bookmark, may come over
	// a watch until its connection is taken for dead, and the watch is opened anew
	// from the last seen version; nothing is missed by that. It limits each list
	// request, too. The API server sends a bookmark about once a minute, the first
	// one after two: with less than 3 minutes, quiet resources are watched anew again
	// and again. Default: 3 minutes.
	InactivityTimeout time.Duration
}

// Scanning says how resources are found: by looking at what the API serves,
// and at CustomResourceDefinitions, so that resources that come or go are noticed
// without a restart.
type Scanning struct {
	// Interval is the pause between looks at what the API serves, if the operator may
	// not list and watch CustomResourceDefinitions; where it may, there is nothing to
	// look for, unless a resource is not served yet or could not be read, which makes
	// the pauses grow to twelve times this. Default: 5 seconds.
	Interval time.Duration
	// Disabled makes only the look at the start count: resources that come later are
	// not noticed, and those that go leave an error in the log (OBS-7).
	Disabled bool
}
