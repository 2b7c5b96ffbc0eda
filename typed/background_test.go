package typed_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/typed"
)

// liveCall is the call of a daemon, whose object is only in Live.
func liveCall(t *testing.T) (call *registry.Call, set func(manifest string, essential bool), log func() string) {
	t.Helper()
	call, buffer := newCall(t, manifest)
	call.Live, call.Stopped = new(registry.Live), make(chan struct{})
	call.Live.Set(call.Body, true)
	call.Body = nil
	set = func(manifest string, essential bool) {
		t.Helper()
		b, err := body.Parse([]byte(manifest))
		if err != nil {
			t.Fatal(err)
		}
		call.Live.Set(b, essential)
	}
	return call, set, buffer.String
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// KW-4: a daemon sees the newest version of its object, and keeps what it does to it to itself.
func TestDaemonObject_KW4(t *testing.T) {
	call, set, log := liveCall(t)
	d, err := typed.NewDaemon[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	if d.Retry != 2 || d.Param != "blue" || d.Log != call.Log || d.Resource != databases || d.Stopping() != call.Stopped {
		t.Errorf("got %+v", d.Attempt)
	}
	first := d.Object()
	if first.Name != "blue" || *first.Spec.Replicas != 3 {
		t.Errorf("object is %+v", first)
	}
	first.Spec.Engine = "changed by the daemon"
	if d.Object() != first {
		t.Error("there is another copy, though no newer version")
	}
	set(`{"metadata":{"name":"blue"},"spec":{"engine":"my"}}`, false)
	second := d.Object()
	if second == first || second.Spec.Engine != "my" || second.Spec.Replicas != nil || d.Object() != second {
		t.Errorf("object is %+v", second)
	}
	other, err := typed.NewDaemon[*database](call)
	if err != nil || other.Object() == second || other.Object().Spec.Engine != "my" {
		t.Errorf("another run sees %+v, %v", other, err)
	}
	if log() != "" {
		t.Error(log())
	}
}

// A version that does not decode is told once, and the one before it stays.
func TestDaemonObjectThatDoesNotDecode(t *testing.T) {
	call, set, log := liveCall(t)
	d, err := typed.NewDaemon[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	first := d.Object()
	for versions := 1; versions <= 2; versions++ {
		changed := d.Changed()
		set(`{"metadata":{"name":"blue"},"spec":{"replicas":"many"}}`, true)
		if !closed(changed) {
			t.Error("the change is not told")
		}
		for range 3 {
			if d.Object() != first {
				t.Error("the object is another one")
			}
		}
		if closed(d.Changed()) {
			t.Error("a version that cannot be seen is told again and again")
		}
		if n := strings.Count(log(), "level=WARN"); n != versions {
			t.Errorf("%d warnings of %d versions:\n%s", n, versions, log())
		}
	}
	set(`{"metadata":{"name":"blue"},"spec":{"engine":"my"}}`, true)
	if d.Object().Spec.Engine != "my" {
		t.Errorf("object is %+v", d.Object())
	}
}

func TestBackgroundUndecodable(t *testing.T) {
	call, set, _ := liveCall(t)
	set(`{"spec":{"replicas":"many"}}`, true)
	_, daemonErr := typed.NewDaemon[*database](call)
	call.Body, _, _ = call.Live.Body()
	_, tickErr := typed.NewTick[*database](call)
	for name, err := range map[string]error{"daemon": daemonErr, "tick": tickErr} {
		var undecodable *registry.DecodeError
		if !errors.As(err, &undecodable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Changed is about what the daemon has seen.
func TestDaemonChanged(t *testing.T) {
	call, set, _ := liveCall(t)
	d, err := typed.NewDaemon[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	fromTheStart := d.Changed()
	set(`{"spec":{"engine":"pg"},"status":{"phase":"Ready"}}`, false)
	if closed(fromTheStart) || closed(d.Changed()) {
		t.Error("a change that is not essential is told")
	}
	set(`{"spec":{"engine":"my"}}`, true)
	if !closed(fromTheStart) || !closed(d.Changed()) {
		t.Error("an essential change is not told")
	}
	d.Object()
	next := d.Changed()
	if closed(next) {
		t.Error("what was seen is told")
	}
	set(`{"spec":{"engine":"maria"}}`, true)
	set(`{"spec":{"engine":"maria"},"status":{"phase":"Ready"}}`, false)
	if !closed(next) || !closed(d.Changed()) {
		t.Error("an essential change before another one is not told")
	}
}

// The patch is previewed on the newest version.
func TestDaemonPatch_DMN5(t *testing.T) {
	call, set, _ := liveCall(t)
	d, err := typed.NewDaemon[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	d.Patch.Apply(func(d *database) { d.Status.Phase = "Seen" })
	set(`{"spec":{"engine":"my"}}`, true)
	preview, err := d.Patch.Preview()
	if err != nil || preview.Spec.Engine != "my" || preview.Status.Phase != "Seen" || len(call.Patch.List()) != 1 {
		t.Errorf("got %+v, %v, %d edits", preview, err, len(call.Patch.List()))
	}
}

func TestNewTick_KW4(t *testing.T) {
	call, _ := newCall(t, manifest)
	tick, err := typed.NewTick[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	if tick.Object.Name != "blue" || tick.Retry != 2 || !tick.Started.Equal(call.Started) || tick.Param != "blue" || tick.Log != call.Log || tick.Resource != databases {
		t.Errorf("got %+v", tick)
	}
	tick.Patch.Apply(func(d *database) { d.Status.Phase = "Ticked" })
	tick.SetResult(7)
	if len(call.Patch.List()) != 1 || call.Result != 7 {
		t.Errorf("%d edits, result %v", len(call.Patch.List()), call.Result)
	}
}

// Daemons are tested without an operator.
func TestNewDaemonFor(t *testing.T) {
	object := &database{Spec: databaseSpec{Engine: "pg"}}
	d, show, stop := typed.NewDaemonFor(object)
	object.Spec.Engine = "changed by the test"
	if first := d.Object(); first.Spec.Engine != "pg" || d.Object() != first || d.Runtime() < 0 {
		t.Errorf("object is %+v", d.Object())
	}
	d.Log.Info("goes nowhere")
	changed := d.Changed()
	if closed(changed) || closed(d.Stopping()) {
		t.Error("told of something that has not happened")
	}
	newer := &database{Spec: databaseSpec{Engine: "my"}}
	show(newer)
	if !closed(changed) || !closed(d.Changed()) || d.Object() == newer || d.Object().Spec.Engine != "my" || closed(d.Changed()) {
		t.Errorf("object is %+v", d.Object())
	}
	d.Patch.Apply(func(d *database) { d.Status.Phase = "Seen" })
	show(&database{Spec: databaseSpec{Engine: "maria"}})
	if preview, err := d.Patch.Preview(); err != nil || preview.Spec.Engine != "maria" || preview.Status.Phase != "Seen" {
		t.Errorf("got %+v, %v", preview, err)
	}
	stop()
	stop()
	if !closed(d.Stopping()) {
		t.Error("not told to stop")
	}
	d.SetResult(7)
	if d.Result() != 7 {
		t.Errorf("result is %v", d.Result())
	}
}

// A daemon that is a plain struct has an object, which is nothing, and hears of nothing.
func TestZeroDaemon(t *testing.T) {
	var d typed.Daemon[*database]
	if d.Object() != nil || d.Changed() != nil || d.Stopping() != nil {
		t.Errorf("got %v, %v, %v", d.Object(), d.Changed(), d.Stopping())
	}
}

// A daemon and goroutines of its own look at the object while it changes, and none misses
// the last change.
func TestDaemonConcurrently(t *testing.T) {
	call, _, _ := liveCall(t)
	d, err := typed.NewDaemon[*database](call)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := body.Parse([]byte(`{"spec":{"engine":"last"}}`))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := call.Live.Body()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				changed := d.Changed()
				if d.Object().Spec.Engine == "last" {
					return
				}
				<-changed
			}
		})
	}
	all.Go(func() {
		for range 200 {
			call.Live.Set(first, true)
		}
		call.Live.Set(newest, true)
	})
	all.Wait()
	if closed(d.Changed()) {
		t.Error("told of a change that everybody has seen")
	}
}
