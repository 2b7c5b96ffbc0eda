// Package engine makes handlers run: it follows the resources that they are for,
// finds out what happened to each object, calls what is to be called, and writes
// what came of it. ARCHITECTURE.md shows the way of one event through it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/metrics"
	"github.com/kopf-go/kopf/internal/recording"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/stream"
)

// Config is what an engine needs. All but Settings is required, if nothing else is said.
type Config struct {
	Client     *stream.Client
	Discovery  Discovery
	Handlers   []*registry.Handler // with selectors
	Namespaces Namespaces
	Naming     state.Naming
	State      state.Config // what is kept on objects; fields are added per resource
	Settings   Settings
	Log        *slog.Logger
	// Recorder posts Kubernetes events. nil: there are none. Handlers find it in the context
	// that Run gets.
	Recorder *recording.Recorder
	// OnHooks is told of all handlers for requests, whenever they are for other resources
	// than before; it must not block. Not required.
	OnHooks func([]Hook)
	// Memos are those of the operator. Not required.
	Memos *registry.Memos
	// Standby has the engine follow everything and handle nothing until Lead. Not required.
	Standby bool
	// Decisions is told what was decided for objects, and why. Not required.
	Decisions *decisions.Ring
}

// Engine runs handlers. Make it with New; it runs once.
type Engine struct {
	Config
	client   *stream.Client
	naming   state.Naming
	settings Settings
	log      *slog.Logger
	timers   *timers
	gate     *gate
	ready    *readiness
	loops    *loops
	director atomic.Pointer[director]
	hooked   atomic.Bool // OnHooks was called

	looked    chan struct{}          // closed when it was read for the first time what is served
	firstLook func() ([]Hook, error) // what it was then
	warm      chan struct{}          // closed when what is there at the start is known
	spaces    *spaces

	// handling is what event handlers, index functions and filters run with, which do so
	// whether there is a term or not; it ends when the operator stops.
	handling context.Context
	term     atomic.Pointer[term] // the one that goes on. Changed with the lock

	mu         sync.Mutex
	leading    bool
	holds      func() bool   // see Lead
	paused     error         // why it is; nil: it is not
	continuing time.Time     // when the last pause was over
	continued  chan struct{} // closed when a pause is over
	terms      []*term       // those that are not drained, in order
	running    int
	closed     bool
	idle       chan struct{} // closed when closed and nothing runs
	calls      map[*registry.Call]calling
	employed   map[types.UID]*object      // those with work in the background
	heirs      map[types.UID]*object      // those that have to wait until the employed one of their UID is not any more
	suspended  error                      // why nothing may run in the background; nil: it may
	pointless  map[*registry.Handler]bool // those that use indices and have read nothing, as it was said
}

// New makes an engine.
func New(c Config) *Engine {
	settings := c.Settings.WithDefaults()
	if c.Memos == nil {
		c.Memos = new(registry.Memos)
	}
	if c.Recorder == nil {
		c.Recorder = recording.New(recording.Config{Disabled: true, Log: c.Log})
	}
	e := &Engine{
		Config: c, client: c.Client, naming: c.Naming, settings: settings, log: c.Log,
		timers: newTimers(), gate: newGate(settings.MaxCycles),
		loops:  newLoops(settings.LoopLimit, settings.LoopWindow),
		spaces: newSpaces(), looked: make(chan struct{}), warm: make(chan struct{}), idle: make(chan struct{}),
		calls:    map[*registry.Call]calling{},
		employed: map[types.UID]*object{}, heirs: map[types.UID]*object{}, pointless: map[*registry.Handler]bool{},
	}
	e.ready = newReadiness(e)
	if e.leading = !c.Standby; c.Standby {
		e.suspended = daemons.ErrPaused
	}
	return e
}

// Run follows and handles until the context ends, then stops in an orderly way:
// streams first, then handlers, whose context ends, then writes. It returns an
// error only if handlers had to be left behind.
func (e *Engine) Run(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	running, stopRunning := context.WithCancel(base)
	handling, stopHandling := context.WithCancelCause(base)
	e.mu.Lock()
	e.handling = handling
	e.mu.Unlock()

	var background sync.WaitGroup
	background.Go(func() { e.timers.run(running) })
	e.activate(false)

	e.ready.begin(e.Handlers)
	d := newDirector(e)
	e.director.Store(d)
	defer d.uncount()
	defer metrics.Watch(e.measure)()
	d.run(ctx) // returns when all streams have ended

	stopHandling(ErrExiting)
	e.deactivate(ErrExiting)
	err := e.close()
	e.Fence() // whoever is left behind would never be told otherwise
	stopRunning()
	background.Wait()
	return err
}

// Warm is closed when all that is followed from the start has been listed, or cannot be. An
// engine that leads from then on, and not before, has less to read.
func (e *Engine) Warm() <-chan struct{} { return e.warm }

// enter registers a goroutine of an object's lane; none begins once the engine stops.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.running++
	return true
}

func (e *Engine) exit() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if e.closed && e.running == 0 {
		close(e.idle)
	}
}

// close waits for what runs, for a time.
func (e *Engine) close() error {
	e.mu.Lock()
	e.closed = true
	if e.running == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
	limit := time.NewTimer(e.patience())
	defer limit.Stop()
	late := false
	select {
	case <-e.idle:
	case <-limit.C:
		late = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, name := range e.names() { // if it is not late, they were abandoned before
		errs = append(errs, fmt.Errorf("%s did not return in time after its context ended, and is left behind", name))
	}
	if late && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("writing did not end within %s", e.settings.ExitTimeout))
	}
	return errors.Join(errs...)
}

// patience is how long the end waits for what runs. What goes on although its term was fenced
// was waited for already, and another operator may be at work by now.
func (e *Engine) patience() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.ContainsFunc(e.terms, func(t *term) bool { return t.writing.Err() != nil }) {
		return min(e.settings.ExitTimeout, time.Second)
	}
	return e.settings.ExitTimeout
}

// stopping tells whether the operator is on its way out.
func (e *Engine) stopping() bool { return e.handling.Err() != nil }
