package leading_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf/internal/leading"
	"github.com/kopf-go/kopf/internal/simulated"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a server with leases, and what its replicas do.
type cluster struct {
	*testing.T
	server *simulated.Server
	leases *simulated.Collection
	begun  time.Time

	mu    sync.Mutex
	notes []string
	busy  map[string]bool // replicas that may be in handlers
}

func inBubble(t *testing.T, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := simulated.New()
		c := &cluster{T: t, server: server, begun: time.Now(), busy: map[string]bool{}, leases: server.Serve(simulated.Kind{
			GroupVersion: "coordination.k8s.io/v1", Kind: "Lease", Plural: "leases", Namespaced: true, NoGeneration: true,
		})}
		test(c)
	})
}

func (c *cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf(format, args...)+fmt.Sprintf(" +%s", time.Since(c.begun).Truncate(10*time.Millisecond)))
}

// expect compares what was noted since the last time.
func (c *cluster) expect(want ...string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.notes, want) {
		c.Errorf("\n got %s\nwant %s", strings.Join(c.notes, "\n     "), strings.Join(want, "\n     "))
	}
	c.notes = nil
}

func (c *cluster) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *cluster) holder() string {
	o := c.leases.Get("ops", "kopf")
	if o == nil {
		return ""
	}
	holder, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
	holder, _, _ = strings.Cut(holder, "_")
	return holder
}

// replica is one that competes, and what it leads: its work needs some time to end.
type replica struct {
	c    *cluster
	name string

	stop context.CancelFunc
	done chan error
	cut  func(*http.Request) bool // loses requests

	mu      sync.Mutex
	holds   func() bool
	drained chan struct{}
	fenced  bool
	ends    time.Duration // how long its work needs to end
}

const forEver = time.Duration(-1)

func (r *replica) takes(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = d
}

func (c *cluster) replica(name string, change ...func(*leading.Options)) *replica {
	r := &replica{c: c, name: name, done: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	o := leading.Options{
		Config: &rest.Config{Host: "http://simulated.invalid", Transport: r}, Name: "kopf", Namespace: "ops", Identity: name,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	}
	for _, f := range change {
		f(&o)
	}
	go func() { r.done <- leading.Run(ctx, o, r) }()
	return r
}

func (r *replica) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	cut := r.cut != nil && r.cut(request)
	r.mu.Unlock()
	if cut {
		return nil, syscall.ECONNREFUSED
	}
	return r.c.server.RoundTrip(request)
}

func (r *replica) disconnect(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut = nil; cut {
		r.cut = func(*http.Request) bool { return true }
	}
}

// end stops it and waits.
func (r *replica) end() error {
	r.stop()
	err := <-r.done
	r.done <- err
	synctest.Wait()
	return err
}

func (r *replica) Lead(holds func() bool) {
	r.c.note("%s leads", r.name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds, r.drained, r.fenced = holds, nil, false
	r.c.work(r, true)
}

// work notes who is in handlers; two at a time are a failure.
func (c *cluster) work(r *replica, works bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.busy, r.name); works {
		c.busy[r.name] = true
		if len(c.busy) > 1 {
			c.Errorf("at a time: %v", c.busy)
		}
	}
}

func (r *replica) StepDown(why error) <-chan struct{} {
	r.c.note("%s steps down: %v", r.name, why)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drained == nil {
		r.drained = make(chan struct{})
		if r.ends != forEver {
			drained := r.drained
			time.AfterFunc(r.ends, func() {
				r.c.work(r, false)
				close(drained)
			})
		}
	}
	return r.drained
}

func (r *replica) Fence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fenced {
		r.fenced = true
		r.c.note("%s is fenced", r.name)
	}
}

func (r *replica) Running() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends == forEver {
		return []string{"the deaf handler of " + r.name}
	}
	return nil
}

// EXT-4, EXT-10: at the end the lease is held until everything has stopped, and then given back,
// so that the next one need not wait for its end.
func TestReleasedWhenAllHasStopped_EXT4(t *testing.T) {
	inBubble(t, func(c *cluster) {
		a := c.replica("a")
		a.takes(30 * time.Second) // longer than the lease
		c.sleep(time.Second)
		b := c.replica("b")
		c.sleep(time.Minute)
		c.expect("a leads +0s")
		a.stop()
		a.takes(14 * time.Second)
		c.sleep(13 * time.Second)
		c.expect("a steps down: operator is exiting +1m1s")
		if c.holder() != "a" {
			t.Errorf("the lease is %s's", c.holder())
		}
		c.sleep(6 * time.Second)
		if err := a.end(); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		if len(c.notes) != 2 || !strings.HasPrefix(c.notes[0], "a is fenced +1m15s") || !strings.HasPrefix(c.notes[1], "b leads +1m1") {
			t.Errorf("%q", c.notes)
		}
		c.mu.Unlock()
		if err := b.end(); err != nil {
			t.Error(err)
		}
		if c.holder() != "" {
			t.Errorf("the lease is %s's", c.holder())
		}
	})
}

// B43: cut off, a leader begins nothing more after RenewDeadline and makes no request after
// LeaseDuration, both counted from before its last renewal; then it competes again.
func TestCutOff_B43(t *testing.T) {
	inBubble(t, func(c *cluster) {
		a := c.replica("a")
		a.takes(4 * time.Second)
		c.sleep(time.Second)
		b := c.replica("b")
		c.sleep(2 * time.Second) // the renewal at 2 s is the last one
		a.disconnect(true)
		c.sleep(30 * time.Second)
		c.mu.Lock()
		notes := slices.Clone(c.notes)
		c.mu.Unlock()
		if len(notes) != 4 || notes[0] != "a leads +0s" || notes[1] != "a steps down: operator is paused +12s" || notes[2] != "a is fenced +16s" || !strings.HasPrefix(notes[3], "b leads +") {
			t.Fatalf("%q", notes)
		}
		c.notes = nil
		a.disconnect(false)
		c.sleep(time.Minute)
		c.expect() // a waits
		if err := b.end(); err != nil {
			t.Error(err)
		}
		c.sleep(5 * time.Second)
		if c.holder() != "a" {
			t.Errorf("the lease is %q's", c.holder())
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// When what runs has ended before the lease has, it is given back.
func TestReleasedAfterALoss(t *testing.T) {
	inBubble(t, func(c *cluster) {
		a := c.replica("a")
		c.sleep(3 * time.Second)
		a.mu.Lock()
		a.cut = func(r *http.Request) bool {
			return r.Method == http.MethodPut && time.Since(c.begun) < 11900*time.Millisecond
		}
		a.mu.Unlock()
		c.server.Before(simulated.On{Verb: "update"}, func(simulated.Request) *simulated.Fault {
			return simulated.Delay(200 * time.Millisecond) // so that no renewal is in time
		})
		c.sleep(9300 * time.Millisecond)
		if c.holder() != "" {
			t.Errorf("the lease is %q's", c.holder())
		}
		c.expect("a leads +0s", "a steps down: operator is paused +12s", "a is fenced +12s")
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// B43: handlers that do not end with the lease are named, and the process has to end. Those
// that do, and late, need not.
func TestDeafBeyondTheLease_B43(t *testing.T) {
	inBubble(t, func(c *cluster) {
		a := c.replica("a")
		a.takes(forEver)
		c.sleep(3 * time.Second)
		a.disconnect(true)
		err := <-a.done
		if err == nil || !strings.Contains(err.Error(), "the deaf handler of a") {
			t.Error(err)
		}
		c.expect("a leads +0s", "a steps down: operator is paused +12s", "a is fenced +17s")
		if since := time.Since(c.begun).Round(time.Second); since != 18*time.Second {
			t.Errorf("it took %s", since)
		}
		c.work(a, false) // its process has ended
		b := c.replica("b")
		b.takes(forEver)
		c.sleep(time.Minute)
		if err := b.end(); err == nil || !strings.Contains(err.Error(), "the deaf handler of b") {
			t.Error(err)
		}
		if c.holder() != "b" {
			t.Error("the lease was given back although something goes on")
		}
	})
}

// B43: a lease that was taken by force is lost as soon as that is seen, and nothing is written
// from then on.
func TestTaken_B43(t *testing.T) {
	inBubble(t, func(c *cluster) {
		a := c.replica("a")
		a.takes(time.Second)
		c.sleep(3 * time.Second)
		_, err := c.leases.Update("ops", "kopf", func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, "thief", "spec", "holderIdentity")
		})
		if err != nil {
			t.Fatal(err)
		}
		c.sleep(10 * time.Second)
		c.expect("a leads +0s", "a is fenced +4s", "a steps down: operator is paused +4s")
		c.sleep(10 * time.Second) // until the thief's lease ends
		c.mu.Lock()
		if len(c.notes) != 1 || !strings.HasPrefix(c.notes[0], "a leads") {
			t.Errorf("%q", c.notes)
		}
		c.mu.Unlock()
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// A process that was frozen finds by the clock that the lease has run out, though nobody has
// told it, and though it is renewed a moment later.
func TestTheClockSaysNo_B43(t *testing.T) {
	inBubble(t, func(c *cluster) {
		a := c.replica("a")
		c.sleep(time.Second)
		a.mu.Lock()
		holds := a.holds
		a.mu.Unlock()
		release := make(chan struct{})
		c.server.After(simulated.On{Verb: "update"}, func(simulated.Request) *simulated.Fault {
			<-release // the answer to the renewal at 2 s
			return nil
		})
		a.takes(time.Minute)
		time.Sleep(15900 * time.Millisecond)
		if holds() {
			t.Error("it holds 16.9 s after the last renewal that is known of")
		}
		close(release)
		c.sleep(time.Second)
		if holds() {
			t.Error("it holds again")
		}
		if err := a.end(); err == nil {
			t.Error("its work needs longer, and is not named")
		}
		c.sleep(time.Minute)
	})
}

// A replica that knows nothing yet lets others lead, but not for long.
func TestWarm(t *testing.T) {
	inBubble(t, func(c *cluster) {
		warm := make(chan struct{})
		a := c.replica("a", func(o *leading.Options) { o.Warm = warm })
		b := c.replica("b", func(o *leading.Options) { o.Warm = make(chan struct{}) })
		c.sleep(3 * time.Second)
		c.expect()
		close(warm)
		c.sleep(20 * time.Second)
		c.expect("a leads +3s")
		if err := a.end(); err != nil {
			t.Error(err)
		}
		c.sleep(5 * time.Second)
		if c.holder() != "b" {
			t.Error("b does not lead")
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// B43: whatever is lost, late or refused, and whoever comes and goes: never two lead at a time.
func TestNeverTwo_B43(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(c *cluster) { hardship(c, seed) })
		})
	}
}

func hardship(c *cluster, seed uint64) {
	dice := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return dice.IntN(n)
	}
	fault := func(simulated.Request) *simulated.Fault {
		switch roll(12) {
		case 0:
			return simulated.Drop()
		case 1:
			return simulated.Delay(time.Duration(roll(6000)) * time.Millisecond)
		case 2:
			return simulated.Fail(500)
		}
		return simulated.Delay(time.Duration(1+roll(20)) * time.Millisecond)
	}
	remove := []func(){c.server.Before(simulated.On{}, fault), c.server.After(simulated.On{}, fault)}
	names := []string{"a", "b", "c"}
	replicas := map[string]*replica{}
	for range 40 {
		name := names[roll(len(names))]
		r := replicas[name]
		switch {
		case r == nil:
			r = c.replica(name)
			r.takes(time.Duration(roll(4900)) * time.Millisecond)
			replicas[name] = r
		case roll(3) == 0:
			if err := r.end(); err != nil {
				c.Error(err)
			}
			delete(replicas, name)
		default:
			r.disconnect(roll(2) == 0)
		}
		time.Sleep(time.Duration(roll(20000)) * time.Millisecond)
	}
	for _, f := range remove {
		f()
	}
	c.mu.Lock()
	led := strings.Count(strings.Join(c.notes, " "), "leads")
	c.mu.Unlock()
	if led < 1 {
		c.Errorf("%d terms", led)
	}
	for _, r := range replicas {
		if err := r.end(); err != nil {
			c.Error(err)
		}
	}
}
