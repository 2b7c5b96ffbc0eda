// Package engine makes handlers run: it follows the resources that they are for,
// finds out what happened to each object, calls what is to be called, and writes
// what came of it. ARCHITECTURE.md shows the way of one event through it.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf/internal/outcome"
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
	spaces    *spaces

	// handling is what handlers run with; it ends when the operator stops. writing is
	// for requests: it lasts until what was begun is written down. working is for work in
	// the background, which is stopped object by object.
	handling, writing, working context.Context

	mu        sync.Mutex
	running   int
	closed    bool
	idle      chan struct{} // closed when closed and nothing runs
	calls     map[*registry.Call]calling
	employed  map[types.UID]*object      // those with work in the background
	heirs     map[types.UID]*object      // those that have to wait until the employed one of their UID is not any more
	suspended error                      // why nothing may run in the background; nil: it may
	pointless map[*registry.Handler]bool // those that use indices and have read nothing, as it was said
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
		spaces: newSpaces(), looked: make(chan struct{}), idle: make(chan struct{}), calls: map[*registry.Call]calling{},
		employed: map[types.UID]*object{}, heirs: map[types.UID]*object{}, pointless: map[*registry.Handler]bool{},
	}
	e.ready = newReadiness(e)
	return e
}

// Run follows and handles until the context ends, then stops in an orderly way:
// streams first, then handlers, whose context ends, then writes. It returns an
// error only if handlers had to be left behind.
func (e *Engine) Run(ctx context.Context) error {
	var stopHandling context.CancelCauseFunc
	e.handling, stopHandling = context.WithCancelCause(context.WithoutCancel(ctx))
	var stopWriting context.CancelFunc
	e.writing, stopWriting = context.WithCancel(context.WithoutCancel(ctx))
	var stopWorking context.CancelCauseFunc
	e.working, stopWorking = context.WithCancelCause(context.WithoutCancel(ctx))

	var background sync.WaitGroup
	background.Go(func() { e.timers.run(e.writing) })

	e.ready.begin(e.Handlers)
	d := newDirector(e)
	e.director.Store(d)
	d.run(ctx) // returns when all streams have ended

	stopHandling(ErrExiting)
	e.suspend(ErrExiting)
	err := e.close()
	stopWorking(ErrExiting) // whoever is left behind would never be told otherwise
	stopWriting()
	background.Wait()
	return err
}

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
	limit := time.NewTimer(e.settings.ExitTimeout)
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

// stopping tells whether the operator is on its way out.
func (e *Engine) stopping() bool { return e.handling.Err() != nil }

// interrupted tells whether an error of a handler is only that the operator stops.
func (e *Engine) interrupted(err error) bool {
	return e.stopping() && !errors.As(err, new(*outcome.PermanentError)) && !errors.As(err, new(*outcome.RetryError))
}
