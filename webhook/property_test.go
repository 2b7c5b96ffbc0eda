package webhook

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestRandomFaults_B47 lets everything happen to three replicas that can happen to them, and
// asks each second whether what each of them serves is trusted by all that API servers may go
// by: requests that take long, fail, or whose answer is lost; conflicts; watches that lag or
// end; replicas that die and come back, the one that keeps the configuration among them;
// Secrets deleted, spoilt and put back to an old version.
func TestRandomFaults_B47(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed).run() })
		})
	}
}

type chaos struct {
	*world
	calls  calls
	mu     sync.Mutex
	random *rand.Rand
	calm   time.Time // until when requests do not fail, and nobody dies
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{world: newWorld(t), random: rand.New(rand.NewPCG(seed, 47))}
	c.applyDelay = func() time.Duration { return c.upTo(10 * time.Second) }
	return c
}

func (c *chaos) upTo(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.random.Int64N(int64(d)))
}

func (c *chaos) one(in int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(in) == 0
}

func (c *chaos) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.calm)
}

func (c *chaos) client() *client {
	fault := func(verb string) error {
		switch {
		case c.quiet() || !c.one(4):
			return nil
		case verb == "update" && c.one(2):
			return apierrors.NewConflict(secretsResource, secretName.Name, errors.New("somebody was faster"))
		}
		return apierrors.NewInternalError(errors.New("not now"))
	}
	return &client{
		store:   c.store,
		latency: func() time.Duration { return c.upTo(150 * time.Millisecond) },
		lag:     func() time.Duration { return c.upTo(300 * time.Millisecond) },
		before:  fault,
		after:   fault,
	}
}

func (c *chaos) run() {
	n := &c.calls
	defer c.end()
	for range 3 {
		c.start(c.client())
	}
	for range 45 * 60 {
		c.second(c.verify, n)
		c.disturb()
	}
	if generations := c.store.generations(); n.failed > 0 || n.made < 4000 || generations < 5 {
		c.t.Errorf("%d of %d requests failed, with %d serving certificates", n.failed, n.made, generations)
	}
}

// disturb does one thing, now and then.
func (c *chaos) disturb() {
	if c.quiet() || !c.one(20) {
		return
	}
	live := c.live()
	c.mu.Lock()
	what, victim, key := c.random.IntN(6), c.random.IntN(3), c.random.IntN(6)
	c.mu.Unlock()
	if what <= 1 {
		if len(live) == 3 {
			c.kill(live[victim])
		} else {
			c.start(c.client())
		}
		return
	}
	if what == 2 {
		c.store.cut()
		return
	}
	// Something happens to the Secret. Some replica must know what was in it, and be there
	// to restore it: nothing else goes wrong for a moment, but one that starts just then.
	for _, r := range live {
		if _, err := r.own.Certificate(); err != nil {
			return
		}
	}
	c.calmFor(40 * time.Second)
	for range 36 { // until all that failed before has been tried again
		c.second(c.verify, &c.calls)
	}
	switch what {
	case 3:
		c.store.delete()
	case 4:
		c.store.edit(func(data map[string][]byte) {
			data[[]string{keyCertificate, keyKey, keyBundle, keyAuthorityKey, keyNext, keyNextKey}[key]] = []byte("garbage")
		})
	case 5:
		c.store.mu.Lock()
		if old := c.store.history[len(c.store.history)/2]; c.store.secret != nil {
			c.store.set(old)
		}
		c.store.mu.Unlock()
	}
	if len(live) < 3 && c.one(2) {
		c.start(c.client())
	}
}

func (c *chaos) calmFor(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = time.Now().Add(d)
}
