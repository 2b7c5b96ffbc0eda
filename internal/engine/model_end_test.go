package engine_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/kopf-go/kopf"
)

// verify checks all lives when everything has come to rest.
func (m *model) verify(handlers []*spec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sync()
	for _, uid := range slices.Sorted(maps.Keys(m.lives)) {
		l := m.lives[uid]
		m.verifyEvents(l)
		for _, c := range l.calls {
			if c.outcome == "" && c.process.end.IsZero() {
				m.fail(l, "%s: has not ended", c)
			}
		}
		switch v := l.newest(); {
		case v.gone:
			m.verifyDeletion(l, handlers)
		case v.deleting:
			m.fail(l, "is not released: %v", v.object.Object)
		case v.shape.inScope():
			m.verifyHandled(l, v, handlers)
		case v.held || len(v.records) > 0:
			m.fail(l, "is out of scope, and not released: held %t, records %v", v.held, v.records)
		}
		m.verifyUntouched(l)
	}
}

// verifyEvents: the last version was shown, and the deletion is the end.
func (m *model) verifyEvents(l *life) {
	if len(l.events) == 0 {
		if !l.newest().gone {
			m.fail(l, "no event was ever shown")
		}
		return
	}
	last, newest := l.events[len(l.events)-1], l.newest()
	switch {
	case newest.gone && last.process == m.process.name && last.eventType != "DELETED":
		m.fail(l, "the deletion was not shown; the last event is %v", last)
	case !newest.gone && (last.process != m.process.name || last.number != newest.number):
		m.fail(l, "the last event is %v, the last version %d", last, newest.number)
	}
}

// verifyHandled: everybody concerned has seen the final state, and nothing is left
// over.
func (m *model) verifyHandled(l *life, v *version, handlers []*spec) {
	switch {
	case v.handled == nil || *v.handled != v.shape:
		m.fail(l, "the last edit does not count as handled: %v, handled %v", v.shape, v.handled)
		return
	case !v.held:
		m.fail(l, "is not held")
	case len(v.records) > 0:
		m.fail(l, "has leftovers: %v", v.records)
	}
	for _, h := range handlers {
		switch {
		case h.sort == "create":
			if l.told(h) == nil {
				m.fail(l, "create handler %s was never through", h.id)
			}
		case h.changes() && h.wants(v.shape):
			m.verifyTold(l, v, h)
		case h.sort == "resume":
			m.verifyResumed(l, h)
		}
	}
	m.verifyWrites(l, v, handlers)
}

func (m *model) verifyTold(l *life, v *version, h *spec) {
	told, part, since := l.told(h), h.part(v.shape), int64(0)
	for _, c := range l.calls {
		if told != nil && c.reason == kopf.ReasonCreate && c.outcome == "success" && c.number > told.number {
			return // it left the scope before it was written that it had been created, and was created again
		}
	}
	if told == nil { // then nothing has changed since the creation was handled
		first := slices.IndexFunc(l.versions, func(v version) bool { return v.handled != nil })
		base := &l.versions[first]
		if h.part(*base.handled) == part {
			return
		}
		m.fail(l, "%s was never told of the change from %v", h.id, *base.handled)
		return
	}
	if told.new == part || l.left(h, told.number) {
		return
	}
	if told.process != m.process && l.unrecorded(told) {
		return
	}
	since = told.number
	m.fail(l, "%s has last seen version %d: %v, the object is %v", h.id, since, told.new, v.shape)
}

// verifyResumed: what was there at the start, and handled, was resumed once.
func (m *model) verifyResumed(l *life, h *spec) {
	first := slices.IndexFunc(l.events, func(s sighting) bool { return s.process == m.process.name })
	resumed := l.last(h, func(c *call) bool { return c.process == m.process && c.outcome == "success" }) != nil
	listed := first >= 0 && l.events[first].eventType == "LISTED"
	if resumed && !listed {
		m.fail(l, "was resumed, but not there at the start")
	}
	if !listed || resumed {
		return
	}
	seen := l.at(l.events[first].number)
	if seen != nil && seen.handled != nil && seen.shape.inScope() && !l.left(h, seen.number) {
		m.fail(l, "was not resumed in %s", m.process.name)
	}
}

// verifyWrites: what handlers had to say is on the object.
func (m *model) verifyWrites(l *life, v *version, handlers []*spec) {
	status, _ := v.object.Object["status"].(map[string]any)
	for _, h := range handlers {
		told := l.last(h, func(c *call) bool { return c.outcome == "success" })
		if told == nil || told.result == nil || told.process != m.process && h.sort != "create" {
			continue
		}
		if status[h.id] != told.result {
			m.fail(l, "the result of %s is %v, not %v", h.id, status[h.id], told.result)
		}
	}
}

// verifyDeletion: what was held and in scope was deleted by the handler, at least
// once, and not again in the same process.
func (m *model) verifyDeletion(l *life, handlers []*spec) {
	first := slices.IndexFunc(l.versions, func(v version) bool { return v.deleting })
	if first < 0 || !l.versions[first].held {
		return
	}
	for _, h := range handlers {
		if h.sort != "delete" && h.sort != "optional" {
			continue
		}
		done := map[*process]int{}
		for _, c := range l.calls {
			if c.handler == h && c.outcome == "success" {
				if done[c.process]++; done[c.process] > 1 && !l.left(h, l.versions[first].number) {
					m.fail(l, "%s: was through before", c)
				}
			}
		}
		if h.sort == "delete" && len(done) == 0 && !l.left(h, l.versions[first].number-1) {
			m.fail(l, "is gone, but %s was never through", h.id)
		}
	}
}

// verifyUntouched: what was never in scope was never written to by the operator, but to
// take off what came along from another object.
func (m *model) verifyUntouched(l *life) {
	if slices.ContainsFunc(l.versions, func(v version) bool { return v.shape.inScope() }) {
		return
	}
	for _, c := range l.calls {
		m.fail(l, "%s: was never in scope", c)
	}
	if len(l.versions[0].records) > 0 {
		return
	}
	for _, r := range m.w.server.Writes() {
		if r.Resource != "namespaces" && strings.Contains(string(r.Body), string(l.uid)) {
			m.fail(l, "was never in scope, but written to: %s %s", r.Verb, r.Body)
		}
	}
}

// digest tells whether two runs were the same.
func (m *model) digest() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, versions, calls := fnv.New32a(), 0, 0
	for _, uid := range slices.Sorted(maps.Keys(m.lives)) {
		l := m.lives[uid]
		versions += len(l.versions)
		calls += len(l.calls)
		for _, v := range l.versions {
			_, _ = fmt.Fprint(h, clock(v.at), v.shape, v.handled != nil, v.deleting, v.held, v.gone)
		}
		for _, c := range l.calls {
			_, _ = fmt.Fprint(h, clock(c.begun), c.handler.id, c.retry, c.outcome)
		}
	}
	return fmt.Sprintf("%d objects, %d versions, %d calls, %d processes; digest %08x", len(m.lives), versions, calls, len(m.processes), h.Sum32())
}
