// Package access keeps the credentials that an operator's login handlers have returned, and
// makes each request with those that are good at the time.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/activities"
)

// Options say where credentials come from. All but First is required.
type Options struct {
	// Login asks the login handlers. There is never more than one call at a time.
	Login func(context.Context) (map[string]*activities.Credentials, error)
	// First is used before anybody is asked, until it is refused (EMB-8).
	First *rest.Config
	// UserAgent is said with credentials that have none of their own (AUTH-2).
	UserAgent string
	// Failed is told when there are no credentials any more, and will be none (AUTH-1).
	Failed func(error)
	Log    *slog.Logger
}

// Vault has the credentials of an operator, and is the transport of its requests. Make it with
// New. It is safe for concurrent use. It has a goroutine only while login handlers are asked.
type Vault struct {
	Options
	ctx     context.Context // of logins
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	base    *url.URL // where clients believe the API server to be
	items   []*item
	refused map[string][]*item // the last ones of each handler that the API server did not take
	refusal error              // the last one
	logins  int                // that have come to something
	login   chan struct{}      // closed when the one that goes on is over; nil: none does
	err     error              // why there are no credentials any more
}

// remembered is how many refused credentials are known of each handler (AUTH-5).
const remembered = 3

// item are credentials that can be used. It does not change.
type item struct {
	key       string // the handler's id
	given     *rest.Config
	inFile    string // the token in given.BearerTokenFile
	priority  int
	expires   time.Time
	base      *url.URL
	transport http.RoundTripper
	login     int // in which it came
}

func (i *item) expired(now time.Time) bool { return !i.expires.IsZero() && !i.expires.After(now) }

// close ends the connections that nobody uses.
func (i *item) close() { CloseIdle(i.transport) }

// New makes a vault. It has to be closed.
func New(o Options) (*Vault, error) {
	v := &Vault{Options: o, refused: map[string][]*item{}}
	if o.First != nil {
		first, err := v.newItem("", &activities.Credentials{Config: o.First})
		if err != nil {
			return nil, err
		}
		v.items = []*item{first}
	}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v, nil
}

func (v *Vault) newItem(key string, c *activities.Credentials) (*item, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.Config)
	if config.UserAgent == "" {
		config.UserAgent = v.UserAgent
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	var inFile []byte
	if config.BearerTokenFile != "" {
		if inFile, err = os.ReadFile(config.BearerTokenFile); err != nil {
			return nil, err
		}
	}
	return &item{
		key: key, given: rest.CopyConfig(c.Config), inFile: string(inFile), priority: c.Priority, expires: c.Expiration,
		base: base, transport: transport,
	}, nil
}

// Connect waits until there are credentials, and returns what clients are to be made of.
func (v *Vault) Connect(ctx context.Context) (*rest.Config, error) {
	i, err := v.acquire(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.base = i.base
	return &rest.Config{Host: i.base.String(), UserAgent: i.given.UserAgent, Timeout: i.given.Timeout, QPS: -1, Transport: v}, nil
}

// acquire returns the credentials to use now. It waits for the login handlers if there are none.
func (v *Vault) acquire(ctx context.Context) (*item, error) {
	for {
		v.mu.Lock()
		i := v.pick()
		if i == nil && v.err == nil && v.login == nil {
			v.begin()
		}
		over, err := v.login, v.err
		v.mu.Unlock()
		switch {
		case i != nil:
			return i, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// pick chooses among those of the highest priority by chance (AUTH-4). Those that have expired
// are dropped (AUTH-5).
func (v *Vault) pick() *item {
	now := time.Now()
	v.items = slices.DeleteFunc(v.items, func(i *item) bool {
		if i.expired(now) {
			v.Log.Info("credentials have expired", "handler", i.key)
			i.close()
		}
		return i.expired(now)
	})
	if len(v.items) == 0 {
		return nil
	}
	highest := slices.MaxFunc(v.items, func(a, b *item) int { return cmp.Compare(a.priority, b.priority) }).priority
	var best []*item
	for _, i := range v.items {
		if i.priority == highest {
			best = append(best, i)
		}
	}
	return best[rand.IntN(len(best))]
}

// begin asks the login handlers. The caller holds the lock.
func (v *Vault) begin() {
	over := make(chan struct{})
	v.login = over
	v.running.Go(func() {
		defer close(over)
		found, err := v.Login(v.ctx)
		v.mu.Lock()
		v.login = nil
		if err == nil {
			err = v.populate(found)
		}
		if err != nil {
			v.err = &activities.LoginError{Err: err}
			err = v.err
		}
		stopped := v.ctx.Err() != nil
		v.mu.Unlock()
		if err != nil && !stopped {
			v.Failed(err)
		}
	})
}

// populate takes what login handlers have returned, but for what was refused before.
func (v *Vault) populate(found map[string]*activities.Credentials) error {
	v.logins++
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(found)) {
		i, err := v.newItem(key, found[key])
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("login handler %s: %w", key, err))
			v.Log.Error("credentials cannot be used", "handler", key, "error", err)
			continue
		case i.expired(time.Now()):
			problems = append(problems, fmt.Errorf("login handler %s: its credentials have expired at %s", key, i.expires))
			continue
		case v.wasRefused(key, i):
			problems = append(problems, fmt.Errorf("login handler %s: the API server has refused its credentials", key))
			continue
		}
		i.login = v.logins
		v.items = append(v.items, i)
	}
	if len(v.items) > 0 {
		return nil
	}
	if len(problems) == 0 {
		problems = append(problems, errors.New("no login handler has returned any"))
	}
	return errors.Join(append(problems, v.refusal)...)
}

// wasRefused tells whether a handler's credentials were refused before, or are those that
// were there first.
func (v *Vault) wasRefused(key string, i *item) bool {
	return slices.ContainsFunc(v.refused[key], i.same) || slices.ContainsFunc(v.refused[""], i.same)
}

// refuse takes credentials away that the API server does not take, and remembers them.
func (v *Vault) refuse(i *item, why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := slices.Index(v.items, i)
	if at < 0 {
		return // others were quicker
	}
	v.items = slices.Delete(v.items, at, at+1)
	v.refusal = why
	v.refused[i.key] = append(v.refused[i.key], i)
	if all := v.refused[i.key]; len(all) > remembered {
		v.refused[i.key] = slices.Delete(all, 0, len(all)-remembered)
	}
	i.close()
	v.Log.Warn("credentials are refused by the API server", "handler", i.key, "others", len(v.items))
}

// Leave asks login handlers nothing any more, and waits for what goes on (ACT-5). What is there can still
// be used.
func (v *Vault) Leave() {
	v.mu.Lock()
	if v.err == nil {
		v.err = &activities.LoginError{Err: errors.New("the operator is stopping")}
	}
	v.mu.Unlock()
	v.cancel()
	v.running.Wait()
}

// Close ends all connections that are not in use.
func (v *Vault) Close() {
	v.Leave()
	v.CloseIdleConnections()
}

// CloseIdleConnections is what http.Client asks for.
func (v *Vault) CloseIdleConnections() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, i := range v.items {
		i.close()
	}
	for _, refused := range v.refused {
		for _, i := range refused {
			i.close()
		}
	}
}
