package engine

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/indexing"
	"github.com/kopf-go/kopf/internal/decisions"
	"github.com/kopf-go/kopf/internal/outcome"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/internal/state"
	"github.com/kopf-go/kopf/internal/tracing"
)

// worker is a daemon or a timer of one object: what daemons.Worker makes run at the right
// time, and once at a time.
type worker struct {
	*daemons.Worker
	object     *object
	background *background
	handler    *registry.Handler

	// The object's lock guards what is wanted.
	wanted bool
	crowd  bool  // it begins together with those of other objects
	why    error // why it is not wanted

	mu      sync.Mutex
	term    *term            // of the last run
	exit    *sync.Once       // tells those who wait for all goroutines that the present one is over; nil: there is none
	began   time.Time        // of the last run that counts; see standing
	begun   *standing        // what stands of attempts; nil: none, as between most ticks
	reading *indexing.Reader // what the last run has read from indices
	woken   bool             // and that is another one now
}

// standing is how an instance stands between its runs. It is kept in memory only (DMN-5).
type standing struct {
	record state.Record // of the attempts
	last   daemons.Run  // that has come to an end, or ended the goroutine
	unsent *unsent

	undecoded bool // the object did not decode in the last run
}

func newWorker(o *object, bg *background, h *registry.Handler) *worker {
	w := &worker{object: o, background: bg, handler: h}
	w.Worker = daemons.NewWorker(w, w)
	return w
}

func (w *worker) standing() standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun != nil {
		return *w.begun
	}
	// When the last run has ended was for the time of the next one only.
	return standing{record: state.Record{Started: w.began}, last: daemons.Run{Started: w.began, Ended: w.began}}
}

func (w *worker) stand(s standing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began, w.begun = s.last.Started, nil
	if s.unsent != nil || s.undecoded || s.record.Retries > 0 {
		kept := s // or each call would allocate
		w.begun = &kept
	}
}

// steer has the worker run, or stop, as is wanted of it now.
func (w *worker) steer() {
	for {
		why := w.forbidden()
		if why == nil {
			w.Start()
		} else {
			w.Stop(why)
		}
		if (w.forbidden() == nil) == (why == nil) { // else somebody has said otherwise meanwhile
			break
		}
	}
	if w.forbidden() != nil {
		w.farewell()
	}
}

// forbidden is why it must not run; nil: it has to.
func (w *worker) forbidden() error {
	w.object.mu.Lock()
	wanted, why := w.wanted, w.why
	w.object.mu.Unlock()
	if !wanted {
		return why
	}
	return w.object.kind.engine.whyNot(w.object)
}

// Context is what runs live in. It does not end by itself before the term is fenced: workers
// are stopped one by one.
func (w *worker) Context() context.Context {
	if t := w.object.kind.engine.current(); t != nil {
		return t.working
	}
	return noTerm
}

// noTerm is for a run that was to begin when the term ended.
var noTerm = func() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	end(daemons.ErrPaused)
	return ctx
}()

func (w *worker) termOfRun() *term {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.term
}

// At waits in the heap of all waits.
func (w *worker) At(when time.Time, fire func()) (cancel func()) {
	timers := w.object.kind.engine.timers
	entry := timers.at(when, fire)
	return func() { timers.stop(entry) }
}

// Go begins a goroutine that the end of the operator waits for, unless it is abandoned.
func (w *worker) Go(run func()) bool {
	t := w.object.kind.engine.current()
	if t == nil || !t.enter() {
		return false
	}
	exit := new(sync.Once)
	w.mu.Lock()
	w.term, w.exit = t, exit
	w.mu.Unlock()
	go func() {
		defer t.leave()
		defer w.exited(exit)
		defer w.object.retire(false) // nobody is told when one leaves at last that was abandoned
		run()
	}()
	return true
}

// exited is when a goroutine is over, by which time there may be another one.
func (w *worker) exited(exit *sync.Once) {
	exit.Do(w.object.kind.engine.exit)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.exit == exit {
		w.exit = nil
	}
}

// First is when an instance begins (DMN-4, TMR-4). After a restart, or a pause, timers
// begin spread over some time.
func (w *worker) First(now time.Time) time.Time {
	h := w.handler
	w.stand(standing{})
	delay := w.initialDelay()
	return h.Schedule.First(now, delay).Add(w.offset(delay))
}

// offset is by how much the first run of the object is put off, so that not all objects
// have theirs at once.
func (w *worker) offset(delay time.Duration) time.Duration {
	h := w.handler
	within := h.Jitter
	w.object.mu.Lock()
	crowd := w.crowd
	w.object.mu.Unlock()
	if within < 0 && h.Schedule.Interval > 0 && delay == 0 && crowd {
		within = min(h.Schedule.Interval/10, 10*time.Second)
	}
	if within <= 0 {
		return 0
	}
	return daemons.Spread(string(w.object.uid), within)
}

// initialDelay asks for the delay of the first run.
func (w *worker) initialDelay() time.Duration {
	h, o := w.handler, w.object
	if h.Spawn == nil {
		return 0
	}
	log := o.log().With("handler", h.ID)
	b, _ := w.background.newest()
	if b == nil {
		b = o.identity()
	}
	delay, err := spawnDelay(o.kind.engine.handling, h, &registry.Call{Body: b, Resource: o.kind.resource.GVR, Log: log, Memos: o.Memos})
	undecoded := (*registry.DecodeError)(nil)
	switch {
	case errors.As(err, &undecoded):
		o.kind.engine.complain(o, b, undecodable, undecoded)
	case err != nil:
		log.Error("initial delay is not known, there is none", "error", err)
	}
	return max(delay, 0)
}

// spawnDelay asks in a goroutine of its own, so that a function that ends it does not end
// the lane of the object.
func spawnDelay(ctx context.Context, h *registry.Handler, call *registry.Call) (delay time.Duration, err error) {
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		defer func() {
			if p := recover(); p != nil {
				err = &outcome.PanicError{Value: p, Stack: debug.Stack()}
			}
		}()
		err = errGoexit // unless it returns
		delay, err = h.Spawn(ctx, call)
	}()
	<-asked
	return delay, err
}

// Due puts a run off until its object has not changed for long enough (TMR-2). A tick that
// is being tried again has not been yet.
func (w *worker) Due(now time.Time) time.Time {
	s := w.standing()
	if s.unsent != nil {
		return now
	}
	if s.record.Retries > 0 {
		s.last = daemons.Run{}
	}
	return w.handler.Schedule.Due(now, s.last, w.background.lastChange())
}

// Cancellation says how a run is stopped.
func (w *worker) Cancellation() daemons.Cancellation { return w.handler.Cancellation }

// Lingers names what does not leave.
func (w *worker) Lingers(since time.Duration, abandoned bool) {
	log := w.log()
	if !abandoned {
		log.Warn("does not leave although it was told to stop", "for", since.Round(time.Millisecond))
		return
	}
	log.Error("did not leave although it was told to stop, and is left behind: its goroutine, and what it holds, may stay for ever",
		"after", since.Round(time.Millisecond))
	w.object.kind.meter.Abandon(w.handler.ID)
	w.tell("abandoned", 0, errAbandoned, time.Time{})
	w.mu.Lock()
	exit := w.exit
	w.mu.Unlock()
	if exit != nil {
		exit.Do(w.object.kind.engine.exit)
	}
}

// Left has the object looked at again, if it was held.
func (w *worker) Left() {
	if w.handler.Finalize && !w.postponed() {
		w.object.reconsider()
	}
	if !w.Running() && w.standing().unsent != nil { // it was just being tried
		w.stand(standing{})
		w.drop(errUnsent)
	}
	w.object.retire(false)
}

// postponed tells whether it goes on in another term, as far as is known.
func (w *worker) postponed() bool {
	w.object.mu.Lock()
	wanted := w.wanted
	w.object.mu.Unlock()
	return wanted && !w.Done() && w.object.kind.engine.current() == nil
}

// Cut is for a handler that has ended its goroutine, which like a panic it cannot have
// meant. What it wanted changed is lost.
func (w *worker) Cut() daemons.Result {
	s, now := w.standing(), time.Now()
	s.last.Ended = now
	out := outcome.Of(w.handler, s.record, &outcome.PanicError{Value: errGoexit}, now, w.object.kind.engine.settings.DefaultBackoff)
	return w.conclude(s, out)
}

// Run is one run of the daemon, or one tick of the timer (DMN-5, TMR-2).
func (w *worker) Run(ctx context.Context, stopping <-chan struct{}) daemons.Result {
	var call *registry.Call
	var before time.Time
	var result daemons.Result
	prepare := func() { call, before, result = w.prepare(time.Now(), stopping) }
	if w.handler.Kind == registry.Daemon {
		aside(prepare)
	} else {
		prepare()
	}
	if call == nil {
		return result
	}
	err := w.invoke(ctx, call)
	if errors.Is(err, errFenced) { // it is stopped, or about to be, and begins again in another term
		return daemons.Result{}
	}
	return w.finish(ctx, call, before, err)
}

// aside runs a function in a goroutine that ends with it. A daemon's goroutine would keep
// the stack that it needs, 4 KB more, as long as the daemon lives.
func aside(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// prepare makes the argument of a run, or says what comes instead of it. before is when the
// run before began.
func (w *worker) prepare(began time.Time, stopping <-chan struct{}) (call *registry.Call, before time.Time, result daemons.Result) {
	s, h := w.standing(), w.handler
	if s.unsent != nil {
		return nil, before, w.resend(s)
	}
	before = s.last.Started
	s.undecoded = false
	if s.record.Retries == 0 {
		s.record.Started = began
	}
	s.last = daemons.Run{Started: began, Ended: began}
	if out, refused := outcome.Refused(h, s.record, began); refused {
		result := w.conclude(s, out)
		if w.roused() { // this run was asked for, and was none
			result.Next = began
		}
		return nil, before, result
	}
	b, _ := w.background.newest()
	if b == nil { // it is being let go
		return nil, before, daemons.Result{Next: began.Add(w.object.kind.engine.settings.DefaultBackoff)}
	}
	w.stand(s)
	if h.Kind == registry.Daemon {
		b = nil // it looks at the live object, and may be there for long
		w.tell("began", s.record.Retries+1, nil, time.Time{})
	}
	edits := new(registry.Edits)
	return &registry.Call{
		Body: b, Resource: w.object.kind.resource.GVR, Retry: s.record.Retries, Started: s.record.Started, Param: h.Param,
		Log: w.object.speaking(w.log().With("attempt", s.record.Retries+1)), Patch: edits.For(h.ID), Memos: w.object.Memos,
		Live: &w.background.live, Stopped: stopping,
	}, before, result
}

// finish writes what a run wants written, and says what follows.
func (w *worker) finish(ctx context.Context, call *registry.Call, before time.Time, err error) daemons.Result {
	o, h := w.object, w.handler
	e, s, now := o.kind.engine, w.standing(), time.Now()
	s.last.Ended = now
	change := w.say(call, err)
	sent, refusal := w.send(change)
	if err == nil {
		err = refusal
	}
	undecoded := (*registry.DecodeError)(nil)
	switch stopped := ctx.Err() != nil || closed(call.Stopped); {
	case stopped:
		w.log().Debug("has left on request", "why", context.Cause(ctx), "error", err)
		w.tell("stopped", 0, context.Cause(ctx), time.Time{})
		if !sent {
			refusal = errUnsent
		}
		w.drop(refusal)
		return daemons.Result{}
	case !sent:
		return w.later(s, change, err)
	case errors.As(err, &undecoded):
		if b, _ := w.background.newest(); b != nil {
			e.complain(o, b, undecodable, undecoded)
		}
		s.last, s.undecoded = daemons.Run{Started: before, Ended: before}, true
		w.stand(s)
		return daemons.Result{Next: now.Add(e.settings.DefaultBackoff)}
	}
	return w.conclude(s, outcome.Of(h, s.record, err, now, e.settings.DefaultBackoff))
}

// invoke calls the function, with the limit of its timeout.
func (w *worker) invoke(ctx context.Context, call *registry.Call) error {
	h := w.handler
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, call.Started.Add(h.Timeout), &timeoutError{h})
		defer cancel()
	}
	ctx, reading := w.track(ctx)
	if h.Kind == registry.Timer { // the life of a daemon is too long for a span
		ctxOfTick, span := tracing.Handler(ctx, nil, w.object.traced, tracing.Call{Handler: h.ID, Reason: string(h.Kind), Retry: call.Retry})
		defer span.End()
		ctx = ctxOfTick
	}
	err := w.object.kind.engine.call(ctx, w.termOfRun(), w.object, h, call)
	if err == nil {
		w.object.kind.engine.check(h, reading)
	}
	return err
}

// conclude takes the outcome of a run, and says what follows: a daemon is done when it has
// succeeded or failed for good (DMN-6), a timer goes on in either case (TMR-3).
func (w *worker) conclude(s standing, out outcome.Outcome) daemons.Result {
	h := w.handler
	w.object.kind.meter.Attempt(h.ID, out.Name(), s.record.Retries > 0)
	w.object.failure(h, out)
	s.record = out.Record(s.record, s.last.Ended)
	w.report(s, out)
	if h.Kind == registry.Daemon || out.Err != nil || out.Ignored != nil || s.record.Retries > 1 { // else it is what is always so
		w.tell(out.Name(), s.record.Retries, errors.Join(out.Err, out.Ignored), s.record.Delayed)
	}
	next := s.record.Delayed
	if out.Final {
		s.record = state.Record{}
	}
	w.stand(s)
	if !out.Final {
		return daemons.Result{Next: next}
	}
	if h.Kind == registry.Daemon {
		return daemons.Result{Done: true}
	}
	var offset time.Duration
	if h.Schedule.Cron != nil {
		offset = w.offset(0)
	}
	next, more := h.Schedule.Next(daemons.Run{Started: s.last.Started.Add(-offset), Ended: s.last.Ended.Add(-offset)})
	return daemons.Result{Next: next.Add(offset), Done: !more}
}

var errAbandoned = errors.New("did not leave although it was told to stop")

// tell records what was decided about the worker.
func (w *worker) tell(outcome string, attempt int, err error, next time.Time) {
	o := w.object
	if o.kind.engine.Decisions == nil {
		return
	}
	o.decide(string(w.handler.Kind), decisions.Verdict{
		Handler: w.handler.ID, Outcome: outcome, Attempt: attempt, Error: o.kind.textOf(err), Next: decisions.At(next),
	})
}

func (w *worker) report(s standing, out outcome.Outcome) {
	log := w.log().With("attempt", s.record.Retries)
	var panicked *outcome.PanicError
	switch {
	case out.Ignored != nil:
		log.Warn("failed, which is ignored", "error", out.Ignored)
	case errors.As(out.Err, &panicked):
		log.Error("panicked", "error", out.Err, "stack", string(panicked.Stack), "final", out.Final, "next", out.Delay)
	case out.Err != nil && out.Final:
		log.Error("failed for good", "error", out.Err)
	case out.Err != nil:
		log.Warn("failed, will be tried again", "error", out.Err, "in", out.Delay)
	case w.handler.Kind == registry.Daemon:
		log.Info("has ended by itself")
	default:
		log.Debug("has ticked", "took", s.last.Ended.Sub(s.last.Started).Round(time.Millisecond))
	}
}

func (w *worker) log() *slog.Logger {
	return w.object.log().With(string(w.handler.Kind), w.handler.ID)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
