package engine_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
)

const noteName = "example.com/note"

// shape is the essence of a widget.
type shape struct {
	Size, Rev                int
	Color, Scope, Tier, Note string
}

func shapeOf(w *widget) shape {
	return shape{
		Size: w.Spec.Size, Rev: w.Spec.Rev, Color: w.Spec.Color,
		Scope: w.Labels["scope"], Tier: w.Labels["tier"], Note: w.Annotations[noteName],
	}
}

func (s shape) inScope() bool { return s.Scope == "in" }

func (s shape) String() string {
	text := fmt.Sprintf("%d/%d", s.Size, s.Rev)
	for _, extra := range []string{s.Color, s.Scope, s.Tier, s.Note} {
		text += cmp.Or("-"+extra, "-")
	}
	return text
}

// spec is what the model knows of a handler.
type spec struct {
	id, sort string // sort: create, update, field, delete, optional, resume
	retries  int    // 0: no limit
	tier     string // if not empty, the tier that it is for
	// project is the part of the essence that the handler is for; nil: all of it.
	project func(shape) any
}

func (h *spec) part(s shape) any {
	if h.project == nil {
		return s
	}
	return h.project(s)
}

// changes tells whether the handler is called for differences.
func (h *spec) changes() bool { return h.sort == "update" || h.sort == "field" }

func (h *spec) wants(s shape) bool { return s.inScope() && (h.tier == "" || h.tier == s.Tier) }

// state of the object after one write.
type version struct {
	number   int64
	at       time.Time
	shape    shape
	handled  *shape // what counts as handled, if it counts for this object
	deleting bool
	held     bool // by us
	gone     bool
	records  []string
	object   widgetObj
}

// life is what happened to one UID.
type life struct {
	uid      types.UID
	name     string
	versions []version
	calls    []*call // of change handlers, in order of their begin
	events   []sighting
}

type sighting struct {
	process, eventType string
	number             int64
}

// call is one attempt of a change handler.
type call struct {
	handler  *spec
	process  *process
	reason   kopf.Reason
	number   int64 // the version that was shown
	had      bool
	old, new any   // parts of shapes
	shown    shape // the whole new one
	retry    int
	started  time.Time
	begun    time.Time
	ended    time.Time
	outcome  string // empty: still running; success, failure, retry, interrupted
	delay    time.Duration
	result   any
}

func (c *call) final() bool { return c.outcome == "success" || c.outcome == "failure" }

func (c *call) String() string {
	text := fmt.Sprintf("%s call %s (%s) #%d version %d: ", clock(c.begun), c.handler.id, c.reason, c.retry, c.number)
	if c.had {
		text += fmt.Sprint(c.old)
	}
	text += fmt.Sprintf(" → %v", c.new)
	switch {
	case c.outcome == "":
		return text + " (running)"
	case c.outcome == "retry":
		return fmt.Sprintf("%s, at %s: again in %s, in %s", text, clock(c.ended), c.delay, c.process.name)
	}
	return fmt.Sprintf("%s, at %s: %s, in %s", text, clock(c.ended), c.outcome, c.process.name)
}

func clock(t time.Time) string { return t.Format("02T15:04:05.000000") }

// process is one run of the operator.
type process struct {
	name       string
	begun, end time.Time // end zero: it runs
}

// model knows what all users and the operator did to objects, what handlers were
// shown, and what they should have been shown (design §4). Calls are checked when
// they happen, and all lives at the end.
type model struct {
	w *world

	mu        sync.Mutex
	position  int // in the history
	lives     map[types.UID]*life
	disturbed map[string][]string
	process   *process
	processes []*process
	failures  int
}

func newModel(w *world) *model {
	return &model{w: w, lives: map[types.UID]*life{}, disturbed: map[string][]string{}}
}

// launched begins a process.
func (m *model) launched() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process = &process{name: fmt.Sprint("process ", len(m.processes)+1), begun: time.Now()}
	m.processes = append(m.processes, m.process)
	return m.process
}

// ended ends it. What its handlers do from now on has happened to nobody.
func (m *model) ended() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process.end = time.Now()
}

// fault notes what was done to a request, for the trace.
func (m *model) fault(name, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disturbed[name] = append(m.disturbed[name], clock(time.Now())+" fault "+what)
}

// sync takes in what was written meanwhile. The caller holds the lock.
func (m *model) sync() {
	var versions []simulated.Version
	versions, m.position = m.w.widgets.History(m.position)
	for _, v := range versions {
		m.take(v)
	}
}

func (m *model) take(v simulated.Version) {
	o := v.Object
	l := m.lives[o.GetUID()]
	if l == nil {
		l = &life{uid: o.GetUID(), name: o.GetName()}
		m.lives[l.uid] = l
	}
	number, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	next := version{
		number: number, at: v.At, object: o, gone: v.Type == "DELETED",
		deleting: o.GetDeletionTimestamp() != nil, held: slices.Contains(o.GetFinalizers(), finalizer),
	}
	var w widget
	raw, _ := json.Marshal(o.Object)
	if err := json.Unmarshal(raw, &w); err != nil {
		m.fail(l, "version %d does not decode: %v", number, err)
	}
	next.shape = shapeOf(&w)
	for key, value := range o.GetAnnotations() {
		switch {
		case key == lastHandledName && o.GetAnnotations()["kopf.zalando.org/last-handled-uid"] == string(l.uid):
			var w widget
			if err := json.Unmarshal([]byte(value), &w); err != nil {
				m.fail(l, "last-handled state does not decode: %v", err)
			}
			handled := shapeOf(&w)
			next.handled = &handled
		case strings.HasPrefix(key, "kopf.zalando.org/") && !strings.HasPrefix(key, "kopf.zalando.org/last-handled"):
			next.records = append(next.records, key)
		}
	}
	l.versions = append(l.versions, next)
	if next.handled != nil && !slices.ContainsFunc(l.versions, func(v version) bool { return v.shape == *next.handled }) {
		m.fail(l, "a state counts as handled that never was: %v", *next.handled)
	}
}

// at finds a version by its number.
func (l *life) at(number int64) *version {
	for i := len(l.versions) - 1; i >= 0; i-- {
		if l.versions[i].number == number {
			return &l.versions[i]
		}
	}
	return nil
}

func (l *life) newest() *version { return &l.versions[len(l.versions)-1] }

// last is the last call of a handler that fits.
func (l *life) last(h *spec, fits func(*call) bool) *call {
	for i := len(l.calls) - 1; i >= 0; i-- {
		if c := l.calls[i]; c.handler.id == h.id && c.handler.sort == h.sort && fits(c) {
			return c
		}
	}
	return nil
}

func anyCall(*call) bool { return true }

// begin checks a call of a change handler.
func (m *model) begin(uid types.UID, c *call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sync()
	c.begun = time.Now()
	l := m.lives[uid]
	if l == nil {
		m.w.Errorf("%s: call for an object that never was: %s", c, uid)
		return
	}
	defer func() { l.calls = append(l.calls, c) }()
	if !c.process.end.IsZero() {
		c.outcome = "interrupted"
		return
	}
	v := l.at(c.number)
	switch {
	case v == nil:
		m.fail(l, "%s: there never was such a version", c)
		return
	case v.shape != c.shown:
		m.fail(l, "%s: the version was %v, not %v", c, v.shape, c.shown)
	}
	for _, other := range l.calls {
		if other.number > c.number {
			m.fail(l, "%s: goes back behind %s", c, other)
		}
		if other.outcome == "" && other.process == c.process {
			m.fail(l, "%s: while another runs: %s", c, other)
		}
	}
	m.checkScope(l, v, c)
	m.checkRetry(l, c)
	switch {
	case c.handler.sort == "create":
		m.checkCreate(l, c)
	case c.handler.sort == "resume":
		m.checkResume(l, c)
	case c.handler.changes() && c.reason != kopf.ReasonCreate:
		m.checkChain(l, c)
	}
}

func (m *model) checkScope(l *life, v *version, c *call) {
	if !c.handler.wants(v.shape) && !(v.gone && c.handler.sort == "optional") {
		m.fail(l, "%s: the object is not in scope", c)
	}
	deletes := c.reason == kopf.ReasonDelete
	lost := c.handler.sort == "optional" && l.versions[len(l.versions)-1].gone // its deletion was missed
	if deletes != (v.deleting || v.gone || lost) {
		m.fail(l, "%s: the reason does not fit the object, deleting: %t", c, v.deleting)
	}
	if (c.handler.sort == "delete" || c.handler.sort == "optional") != deletes && c.handler.sort != "field" {
		m.fail(l, "%s: wrong reason", c)
	}
	if !v.held && c.handler.sort != "optional" && !v.gone {
		m.fail(l, "%s: no finalizer protects the object", c) // FIN-3
	}
	if c.handler.changes() && c.had && c.old == c.new {
		m.fail(l, "%s: nothing has changed", c)
	}
}

// checkRetry: attempts of a change-set count up by one, and come when they were asked
// for, not before.
func (m *model) checkRetry(l *life, c *call) {
	if c.handler.retries > 0 && c.retry >= c.handler.retries {
		m.fail(l, "%s: only %d attempts are allowed", c, c.handler.retries)
	}
	since := c.started.Truncate(time.Microsecond) // as records keep it
	same := l.last(c.handler, func(o *call) bool { return o.started.Truncate(time.Microsecond).Equal(since) })
	before := l.last(c.handler, anyCall)
	restarted := before != nil && before.process != c.process
	switch {
	case same == nil && c.retry != 0:
		m.fail(l, "%s: the first attempt since %s", c, clock(since))
	case same == nil:
		if before != nil && before.outcome == "retry" && !restarted && before.reason == c.reason && !m.restartedSet(l, before) {
			m.fail(l, "%s: not the attempt after %s", c, before)
		}
	case restarted && c.retry <= same.retry:
		// What was not written any more is repeated.
	case same.outcome != "retry" || c.retry != same.retry+1:
		m.fail(l, "%s: not the attempt after %s", c, same)
	default:
		if due := same.ended.Add(same.delay).Truncate(time.Microsecond); c.begun.Before(due) {
			m.fail(l, "%s: %s too early", c, due.Sub(c.begun))
		}
	}
}

// unrecorded tells whether the process of a call has ended before it could write that
// the handler was through: the next one does not know of it, and does not tell it of a
// change that was taken back meanwhile.
func (l *life) unrecorded(c *call) bool {
	return !slices.ContainsFunc(l.versions, func(v version) bool {
		return v.at.After(c.ended) && (c.process.end.IsZero() || !v.at.After(c.process.end)) &&
			(slices.ContainsFunc(v.records, func(name string) bool { return strings.HasPrefix(name, "kopf.zalando.org/"+c.handler.id) }) ||
				v.handled != nil && c.handler.part(*v.handled) == c.new)
	})
}

// restartedSet tells whether the change-set of a call has ended early since: by a
// revert, or because the object was out of the handler's scope, or the part that the
// handler is for was.
func (m *model) restartedSet(l *life, before *call) bool {
	then := l.at(before.number)
	return l.left(before.handler, before.number) || l.takenBack(before.number) ||
		slices.ContainsFunc(l.versions, func(v version) bool { // it was told all there was when the change-set ended
			return v.number > before.number && v.handled != nil && then != nil && then.handled != nil && *v.handled != *then.handled &&
				before.handler.part(*v.handled) == before.old
		}) ||
		before.handler.project != nil && slices.ContainsFunc(l.versions, func(v version) bool {
			return v.number > before.number && v.handled != nil && before.handler.part(*v.handled) == before.handler.part(v.shape)
		})
}

// left tells whether the object was out of scope since a version.
func (l *life) left(h *spec, since int64) bool {
	return slices.ContainsFunc(l.versions, func(v version) bool { return v.number > since && !h.wants(v.shape) })
}

// takenBack tells whether an edit since a version made the object what it had been
// when it was last handled.
func (l *life) takenBack(since int64) bool {
	for i := 1; i < len(l.versions); i++ {
		v, before := &l.versions[i], &l.versions[i-1]
		if v.number > since && v.handled != nil && *v.handled == v.shape && before.shape != v.shape {
			return true
		}
	}
	return false
}

// checkCreate: once for each UID, if no end of a process comes between.
func (m *model) checkCreate(l *life, c *call) {
	if c.had {
		m.fail(l, "%s: there is an old state", c)
	}
	for _, other := range l.calls {
		if other.process != c.process || l.left(other.handler, other.number) { // that the creation was through need not have been written
			continue
		}
		if other.reason == kopf.ReasonUpdate || other.reason == kopf.ReasonResume || other.reason == kopf.ReasonDelete {
			m.fail(l, "%s: after %s", c, other)
			return
		}
	}
	if before := l.last(c.handler, (*call).final); before != nil && before.process == c.process && !l.left(c.handler, before.number) {
		m.fail(l, "%s: again, after %s", c, before)
	}
}

// checkResume: once in a process.
func (m *model) checkResume(l *life, c *call) {
	if before := l.last(c.handler, (*call).final); before != nil && before.process == c.process {
		m.fail(l, "%s: again, after %s", c, before)
	}
	if l.versions[0].at.After(c.process.begun) && slices.ContainsFunc(l.calls, func(o *call) bool {
		return o.process == c.process && o.reason == kopf.ReasonCreate && o.outcome == "success"
	}) {
		m.fail(l, "%s: it was created in this process", c)
	}
}

// checkChain: the old state is what the handler was told last. Nothing is left out,
// and nothing told again.
func (m *model) checkChain(l *life, c *call) {
	told := l.told(c.handler)
	if told == nil {
		if c.reason == kopf.ReasonUpdate && !slices.ContainsFunc(l.calls, func(o *call) bool { return o.reason == kopf.ReasonCreate }) {
			m.fail(l, "%s: an update of what was never created", c)
		}
		if c.had && c.handler.project == nil && !slices.ContainsFunc(l.versions, func(v version) bool { return c.handler.part(v.shape) == c.old }) {
			m.fail(l, "%s: it never was %v", c, c.old)
		}
		return
	}
	if c.reason == kopf.ReasonDelete && told.reason != kopf.ReasonDelete {
		return // a change-set of its own, from what counts as handled (PRG-9)
	}
	if told.new == c.old && c.had || l.left(c.handler, told.number) {
		return
	}
	repeated := slices.ContainsFunc(l.versions, func(v version) bool {
		return v.number <= told.number && c.handler.part(v.shape) == c.old
	})
	if told.process != c.process && repeated {
		return
	}
	m.fail(l, "%s: but the handler was told last: %s", c, told)
}

// told is the last call of a handler that told it something.
func (l *life) told(h *spec) *call { return l.last(h, (*call).final) }

// finish takes in what came of a call.
func (m *model) finish(c *call, outcome string, delay time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.ended = time.Now()
	if !c.process.end.IsZero() {
		outcome = "interrupted"
	}
	c.outcome, c.delay = outcome, delay
}

// event checks what an event handler is shown: versions in order, and nothing after
// the end.
func (m *model) event(p *process, e *kopf.Event[*widget]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sync()
	if !p.end.IsZero() {
		return
	}
	l := m.lives[e.Object.UID]
	if l == nil {
		m.w.Errorf("event %s of an object that never was: %s", e.Type, e.Object.UID)
		return
	}
	number, _ := strconv.ParseInt(e.Object.ResourceVersion, 10, 64)
	s := sighting{process: p.name, eventType: string(e.Type), number: number}
	if n := len(l.events); n > 0 && l.events[n-1].process == p.name {
		before := l.events[n-1]
		switch {
		case before.eventType == "DELETED":
			m.fail(l, "event %s %d after the deletion", s.eventType, number)
		case number <= before.number && !e.IdentityOnly:
			m.fail(l, "event %s %d after %s %d", s.eventType, number, before.eventType, before.number)
		}
	}
	if v := l.at(number); !e.IdentityOnly && (v == nil || v.shape != shapeOf(e.Object)) {
		m.fail(l, "event %s %d: no such version was ever there", s.eventType, number)
	}
	l.events = append(l.events, s)
}

// fail reports a mistake, with the last things that happened to the object. The
// caller holds the lock.
func (m *model) fail(l *life, format string, args ...any) {
	m.w.Helper()
	if m.failures++; m.failures > 5 {
		return
	}
	m.w.Errorf("%s (%s): %s\nits history:\n\t%s", l.name, l.uid, fmt.Sprintf(format, args...), strings.Join(m.trace(l), "\n\t"))
}

// trace is the end of an object's history.
func (m *model) trace(l *life) []string {
	lines := slices.Clone(m.disturbed[l.name])
	for i, v := range l.versions {
		line := fmt.Sprintf("%s version %d: %v", clock(v.at), v.number, v.shape)
		if i > 0 && v.shape == l.versions[i-1].shape {
			line = fmt.Sprintf("%s version %d: same", clock(v.at), v.number)
		}
		if v.handled != nil {
			line += fmt.Sprintf(" handled %v", *v.handled)
		}
		if v.deleting {
			line += " deleting"
		}
		if v.held {
			line += " held"
		}
		if v.gone {
			line += " gone"
		}
		for _, r := range v.records {
			line += " " + strings.TrimPrefix(r, "kopf.zalando.org/")
		}
		lines = append(lines, line)
	}
	for _, c := range l.calls {
		lines = append(lines, c.String())
	}
	for _, p := range m.processes {
		lines = append(lines, clock(p.begun)+" "+p.name+" begins")
		if !p.end.IsZero() {
			lines = append(lines, clock(p.end)+" "+p.name+" ends")
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(a[:18], b[:18]) })
	first := clock(l.versions[0].at)
	lines = slices.DeleteFunc(lines, func(line string) bool { return line[:18] < first })
	return lines[max(0, len(lines)-60):]
}
