package activity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/registry"
)

const (
	// probeAge is how long an answer of probes is kept (ACT-6).
	probeAge = 10 * time.Second
	// probeLimit is how long probes may take, and those who ask are kept waiting (ACT-7).
	probeLimit = 10 * time.Second
)

// Probes answer those who ask over HTTP how the operator is, with the results of its probes
// as a JSON object. They are safe for concurrent use.
type Probes struct {
	activity Activity
	ctx      context.Context
	cancel   context.CancelFunc
	called   atomic.Pointer[string] // the probe that was called last
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	asked  *asked // what goes on, or was answered last; nil: nobody has asked
}

// asked is one run of the probes, which all that ask meanwhile share.
type asked struct {
	begun time.Time
	done  chan struct{}

	// From when it is done:
	at   time.Time
	code int
	text []byte
}

// NewProbes makes the answers of an activity's handlers, which get what the context carries.
// They end with Close, and not with the context.
func NewProbes(ctx context.Context, a Activity) *Probes {
	p := &Probes{activity: a}
	p.activity.Kind = registry.Probe
	p.activity.Patience = -1 // one that does not return is not called again meanwhile
	p.activity.Handlers = nil
	for _, h := range a.Handlers {
		noted := *h
		noted.Invoke = func(ctx context.Context, call *registry.Call) error {
			p.called.Store(&noted.ID)
			return h.Invoke(ctx, call)
		}
		p.activity.Handlers = append(p.activity.Handlers, &noted)
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

// ServeHTTP answers with 200 and the results, with 500 if a probe has failed for good, and
// with 503 if there is no answer in time.
func (p *Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "ask with GET", http.StatusMethodNotAllowed)
		return
	}
	a := p.ask()
	if a == nil {
		http.Error(w, "the operator is stopping", http.StatusServiceUnavailable)
		return
	}
	limit := time.NewTimer(time.Until(a.begun.Add(probeLimit)))
	defer limit.Stop()
	select {
	case <-a.done:
	case <-r.Context().Done():
		http.Error(w, "the request has ended", http.StatusServiceUnavailable)
		return
	case <-limit.C:
		select {
		case <-a.done:
		default:
			http.Error(w, fmt.Sprintf("probe %s has not answered within %s", *p.called.Load(), probeLimit), http.StatusServiceUnavailable)
			return
		}
	}
	if a.code != http.StatusOK {
		http.Error(w, string(a.text), a.code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(a.text); err != nil {
		p.activity.Log.Debug("answer of probes was not taken", "error", err)
	}
}

// ask has the probes called, unless they are being called, or have answered just now.
// Failures are not kept.
func (p *Probes) ask() *asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if a := p.asked; a != nil {
		select {
		case <-a.done:
			if a.code == http.StatusOK && time.Since(a.at) < probeAge {
				return a
			}
		default:
			return a
		}
	}
	a := &asked{begun: time.Now(), done: make(chan struct{})}
	p.asked = a
	p.running.Go(func() { p.run(a) })
	return a
}

func (p *Probes) run(a *asked) {
	defer close(a.done)
	ctx, cancel := context.WithDeadline(p.ctx, a.begun.Add(probeLimit))
	defer cancel()
	outcomes, err := p.activity.Run(ctx)
	a.at = time.Now()
	switch {
	case errors.As(err, new(*activities.Error)):
		a.code, a.text = http.StatusInternalServerError, []byte(err.Error())
	case err != nil:
		a.code, a.text = http.StatusServiceUnavailable, []byte(err.Error())
	default:
		results := map[string]any{}
		for _, o := range outcomes {
			if o.Result != nil {
				results[o.ID] = o.Result
			}
		}
		a.code = http.StatusOK
		if a.text, err = json.Marshal(results); err != nil {
			a.code, a.text = http.StatusInternalServerError, []byte(err.Error())
		}
	}
}

// Close ends the contexts of probes, and answers nobody any more. It names a probe that
// does not return within some time, and is left behind.
func (p *Probes) Close(patience time.Duration) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.running.Wait()
	}()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-limit.C:
		return fmt.Errorf("probe %s did not return in time after its context ended, and is left behind", *p.called.Load())
	}
}
