package engine

import (
	"time"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/state"
)

// checkpoints records finished handlers while others of the same cycle still run:
// one that finished more than the interval ago is written down, so that a crash
// repeats no more than the last moments. Plain bookkeeping takes no lock and so
// never conflicts.
type checkpoints struct {
	cycle   *cycle
	writing chan struct{} // a lock that may be waited for in a synctest bubble
	started bool
	stopped bool
	next    *timer
	saved   map[*task]time.Time

	body      *body.Body // what a checkpoint has made of the object
	uncertain bool       // nobody knows whether one has been written
}

// start begins, when there is more than one handler.
func (p *checkpoints) start() {
	if p.started || p.cycle.gone {
		return
	}
	p.started = true
	p.writing, p.saved = make(chan struct{}, 1), map[*task]time.Time{}
	p.writing <- struct{}{}
	defer func() { <-p.writing }()
	p.schedule()
}

func (p *checkpoints) schedule() {
	e := p.cycle.kind.engine
	p.next = e.timers.at(time.Now().Add(e.settings.CheckpointInterval), func() {
		go func() {
			p.writing <- struct{}{}
			defer func() { <-p.writing }()
			if !p.stopped {
				p.save()
				p.schedule()
			}
		}()
	})
}

// stop ends it and waits for a write that is under way.
func (p *checkpoints) stop() {
	if !p.started {
		return
	}
	p.writing <- struct{}{}
	defer func() { <-p.writing }()
	p.stopped = true
	p.cycle.kind.engine.timers.stop(p.next)
}

func (p *checkpoints) save() {
	c := p.cycle
	changes := p.finished()
	if changes == nil {
		return
	}
	w := &writer{term: c.term, object: c.object, body: c.body, learn: c.object.learn, account: c.account}
	changed, err := w.apply(c.kind.change(changes, nil))
	if err != nil {
		c.log.Debug("progress could not be written in between", "error", err)
		p.uncertain = true // it may have been written all the same
		return
	}
	if changed {
		p.body = w.body
	}
}

// finished collects the records that are old enough.
func (p *checkpoints) finished() *state.Changes {
	c := p.cycle
	changes := c.kind.store.Changes(c.body)
	any := false
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.all() {
		age := time.Since(t.record.Stopped)
		if t.record.Finished() && age >= c.kind.engine.settings.CheckpointInterval && p.saved[t] != t.record.Stopped && !c.passing(t) {
			c.store(changes, t)
			any = true
			p.saved[t] = t.record.Stopped
		}
	}
	if !any {
		return nil
	}
	return changes
}
