package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/simulated"
	"github.com/kopf-go/kopf/on"
)

// B50, B33: however often namespaces are labelled, unlabelled, deleted and created anew, and
// whatever goes wrong meanwhile: in the end, everything is followed in those that match, and
// nothing in the others, where objects have nothing of ours but the state that was handled
// last; and what was missed is told once when they match again.
func TestNamespacesFlip_B50_B33(t *testing.T) {
	bySeed(t, 10, 3, func(w *world, n uint64) {
		w.allow("")
		p := &migration{
			world: w, dice: rand.New(rand.NewPCG(n, 5)), luck: &luck{seed: n, asked: map[string]int{}},
			on: map[string]bool{}, running: map[instance]int{}, updates: map[string][]string{},
		}
		p.run()
	})
}

// migration is a world whose namespaces come and go by chance.
type migration struct {
	*world
	dice *rand.Rand
	luck *luck

	on      map[string]bool // which namespaces match
	op      *operator
	index   *textIndex
	process int
	killed  bool
	mend    []func()

	mu      sync.Mutex
	running map[instance]int
	updates map[string][]string // of each object since the last look: old→new sizes
}

var migrants = []string{"n0", "n1", "n2"}

func (p *migration) begin() {
	p.process++
	process := p.process
	p.op = p.launch(func(h handlers) {
		p.index = on.Index(func(_ context.Context, s *snapshot) (texts, error) {
			return texts{s.Object.Namespace + "/" + s.Object.Name: fmt.Sprint(s.Object.Spec.Size)}, nil
		}, on.ID("index"), on.In(h.r), forWidgets)
		told := func(ctx context.Context, c *change) error {
			dice := p.luck.about("change" + c.Object.Name)
			if dice.IntN(4) == 0 {
				return kopf.Retry(moment(dice, 3*time.Second), errFlop)
			}
			time.Sleep(moment(dice, 2*time.Second))
			if c.Old != nil && c.Reason == kopf.ReasonUpdate {
				p.mu.Lock()
				defer p.mu.Unlock()
				key := c.Object.Namespace + "/" + c.Object.Name
				p.updates[key] = append(p.updates[key], fmt.Sprintf("%d→%d", c.Old.Spec.Size, c.New.Spec.Size))
			}
			return nil
		}
		on.Create(told, on.ID("create"), on.In(h.r), forWidgets)
		on.Update(told, on.ID("update"), on.In(h.r), forWidgets)
		on.Resume(failing(), on.ID("resume"), on.In(h.r), forWidgets)
		on.Delete(failing(), on.ID("delete"), on.In(h.r), forWidgets, on.Label("bye", "yes"))
		for id, linger := range map[string]time.Duration{"holding": 2 * time.Second, "plain": time.Second, "deaf": 20 * time.Second} {
			opts := []on.DaemonOption{on.ID(id), on.In(h.r), forWidgets, on.Label("run", "yes"), on.Backoff(2 * time.Second)}
			if id != "plain" {
				opts = append(opts, on.Finalize(), on.CancellationTimeout(5*time.Second))
			}
			on.Daemon(func(ctx context.Context, d *daemon) error {
				i := instance{process, d.Object().UID, id}
				p.count(i, 1)
				defer p.count(i, -1)
				<-ctx.Done()
				time.Sleep(moment(p.luck.about(id), linger))
				return nil
			}, opts...)
		}
	})
}

func (p *migration) count(i instance, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[i] += by; p.running[i] > 1 {
		p.Errorf("%d of %v run", p.running[i], i)
	}
}

// flip has a namespace match, or not.
func (p *migration) flip(name string, matches bool) {
	p.on[name] = matches
	if matches {
		p.space(name, "on=yes")
	} else {
		p.space(name, "off=yes")
	}
}

// raze deletes a namespace with all that is in it, which nobody may hold up.
func (p *migration) raze(name string) {
	for _, o := range p.in(name) {
		if err := p.widgets.Vanish(name, o.GetName()); err != nil {
			p.Fatal(err)
		}
	}
	if err := p.server.Collection("v1", "namespaces").Delete("", name); err != nil {
		p.Fatal(err)
	}
	delete(p.on, name)
}

func (p *migration) in(namespace string) (objects []widgetObj) {
	for _, o := range p.widgets.List() {
		if o.GetNamespace() == namespace {
			objects = append(objects, o)
		}
	}
	return objects
}

// step has something happen.
func (p *migration) step() {
	space := migrants[p.dice.IntN(len(migrants))]
	name := fmt.Sprint("w", p.dice.IntN(3))
	roll := p.dice.IntN(100)
	_, exists := p.on[space]
	there := p.widgets.Get(space, name) != nil
	labels := map[string]string{"run": []string{"yes", "no"}[p.dice.IntN(2)], "bye": []string{"yes", "no"}[p.dice.IntN(2)]}
	switch {
	case !exists:
		p.flip(space, roll < 50)
	case roll < 40:
		p.flip(space, !p.on[space])
	case roll < 43:
		p.raze(space)
	case roll < 47:
		p.killed = true
		p.op.kill()
		p.begin()
	case roll < 55:
		fault := []*simulated.Fault{simulated.Fail(500), simulated.Fail(409), simulated.Fail(403), simulated.Drop(), simulated.Delay(time.Second)}[p.dice.IntN(5)]
		verb := []string{"patch", "list", "get", "watch"}[p.dice.IntN(4)]
		p.mend = append(p.mend, p.server.Before(simulated.On{Verb: verb, Resource: "widgets", Times: 1 + p.dice.IntN(4)}, simulated.Always(fault)))
	case roll < 58:
		p.server.Compact()
		p.server.CutWatches()
	case roll < 62:
		p.server.DelayWatches(moment(p.dice, time.Second) * time.Duration(p.dice.IntN(2)))
	case !there:
		o := simulated.Object(space, name, map[string]any{"spec": map[string]any{"size": int64(roll)}})
		o.SetLabels(labels)
		if _, err := p.widgets.Create(o); err != nil {
			p.Fatal(err)
		}
	case roll < 70:
		if err := p.widgets.Delete(space, name); err != nil {
			p.Fatal(err)
		}
	default:
		if _, err := p.widgets.Update(space, name, func(o widgetObj) {
			if o.GetDeletionTimestamp() == nil {
				o.SetLabels(labels)
				set(o, int64(roll), "spec", "size")
			}
		}); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *migration) run() {
	p.selector = "on=yes"
	for _, name := range migrants {
		p.flip(name, true)
	}
	p.begin()
	for range 250 { // some 100 flips
		p.step()
		if p.dice.IntN(3) > 0 {
			time.Sleep(moment(p.dice, 2*time.Second))
		}
	}
	for _, mend := range p.mend {
		mend()
	}
	p.server.DelayWatches(0)
	last := map[string]bool{}
	for _, name := range migrants {
		if _, exists := p.on[name]; !exists {
			p.flip(name, false)
		}
		last[name] = p.on[name]
		if p.killed { // what one has left behind that was killed while it released
			p.flip(name, true)
		}
	}
	if p.killed {
		p.sleep(15 * time.Minute)
		for name, matches := range last {
			p.flip(name, matches)
		}
	}
	p.sleep(15 * time.Minute)
	p.check()
	p.relabel()
	for _, name := range migrants {
		p.flip(name, false)
	}
	p.sleep(time.Minute)
	p.check()
}

// check compares what is there with what is to be.
func (p *migration) check() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[instance]bool{}
	watches := 2 // of namespaces and CRDs
	var indexed []string
	for _, space := range migrants {
		if p.on[space] {
			watches++
		}
		for _, o := range p.in(space) {
			key := space + "/" + o.GetName()
			if o.GetDeletionTimestamp() != nil {
				p.Errorf("%s was deleted, and is still there", key)
			}
			run, bye := o.GetLabels()["run"] == "yes", o.GetLabels()["bye"] == "yes"
			if held := slices.Contains(o.GetFinalizers(), finalizer); held != (p.on[space] && (run || bye)) {
				p.Errorf("%s (%t) with labels %v is held: %t", key, p.on[space], o.GetLabels(), held)
			}
			for name := range o.GetAnnotations() {
				if !strings.HasPrefix(name, "kopf.zalando.org/last-handled") {
					p.Errorf("%s (%t) has a leftover: %s", key, p.on[space], name)
				}
			}
			if !p.on[space] {
				continue
			}
			if got, size := p.handledIn(o), p.sizeOf(o); got != size {
				p.Errorf("%s: size %d is handled, not %d", key, got, size)
			}
			indexed = append(indexed, fmt.Sprintf("%s=%d", key, p.sizeOf(o)))
			for _, id := range []string{"plain", "holding", "deaf"} {
				wanted[instance{p.process, o.GetUID(), id}] = run
			}
		}
	}
	p.holds(p.index, indexed...)
	for i, n := range p.running {
		if i.process == p.process && (n == 1) != wanted[i] {
			p.Errorf("%d of %v run, wanted: %t", n, i, wanted[i])
		}
	}
	for i, is := range wanted {
		if is && p.running[i] != 1 {
			p.Errorf("%d of %v run", p.running[i], i)
		}
	}
	if n := p.server.Watches(); n != watches {
		p.Errorf("%d watches, want %d", n, watches)
	}
}

// relabel edits what is in the namespaces that do not match, and has them match.
func (p *migration) relabel() {
	p.Helper()
	missed := map[string][]string{}
	for _, space := range migrants {
		if p.on[space] {
			continue
		}
		for _, o := range p.in(space) {
			if handled := p.handledIn(o); handled >= 0 { // else it is created for us
				missed[space+"/"+o.GetName()] = []string{fmt.Sprintf("%d→1000", handled)}
			}
			for _, size := range []int64{999, 1000} {
				if _, err := p.widgets.Update(space, o.GetName(), func(o widgetObj) { set(o, size, "spec", "size") }); err != nil {
					p.Fatal(err)
				}
			}
		}
	}
	p.mu.Lock()
	clear(p.updates)
	p.mu.Unlock()
	p.sleep(10 * time.Minute)
	if len(p.updates) > 0 {
		p.Errorf("without a match, there are calls: %v", p.updates)
	}
	for _, space := range migrants {
		p.flip(space, true)
	}
	p.sleep(15 * time.Minute)
	if fmt.Sprint(p.updates) != fmt.Sprint(missed) {
		p.Errorf("updates %v, missed were %v", p.updates, missed)
	}
	p.check()
}

func (p *migration) sizeOf(o widgetObj) int {
	spec, _ := o.Object["spec"].(map[string]any)
	size, _ := spec["size"].(int64)
	return int(size)
}

// handledIn is the size in the last-handled record of this very object; -1: there is none.
func (p *migration) handledIn(o widgetObj) int {
	text := o.GetAnnotations()[lastHandledName]
	if uid := o.GetAnnotations()["kopf.zalando.org/last-handled-uid"]; text == "" || uid != "" && types.UID(uid) != o.GetUID() {
		return -1
	}
	var record struct{ Spec widgetSpec }
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		p.Fatal(err)
	}
	return record.Spec.Size
}
