package stream

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs a test against a server that streams lists and one that does not.
func both(t *testing.T, test func(t *testing.T, f *fakeAPI)) {
	t.Helper()
	for _, mode := range []string{"streamed", "listed"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeAPI(t)
				f.noStreaming = mode == "listed"
				test(t, f)
			})
		})
	}
}

func bubble(t *testing.T, test func(t *testing.T, f *fakeAPI)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFakeAPI(t)) })
}

// WCH-1, WCH-2: first everything that is there, then what happens to it.
func TestListsThenWatches(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", `,"spec":{"size":1}`)
		f.put("ns/b", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a", "LISTED ns/b")
		if !r.synced() {
			t.Error("not synced")
		}
		f.put("ns/a", `,"spec":{"size":2}`)
		f.put("other/c", "")
		f.remove("ns/b")
		r.expect(t, "MODIFIED ns/a", "ADDED other/c", "DELETED ns/b")
		last := r.bodies[len(r.bodies)-1]
		if last.Missed || last.Body.Labels["app"] != "x" || last.Body.Kind != "Widget" {
			t.Errorf("a deletion that was seen must bring the last body, got %s", last.Body.Raw())
		}
		if got := r.reasons(); got != nil {
			t.Errorf("failures: %v", got)
		}
	})
}

// The first list must not come from the memory of some API server (RV 0).
func TestFirstListIsConsistent(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		follow(t, f).expect(t)
		for _, r := range f.requests() {
			if r.verb != "watch" && r.version != "" {
				t.Errorf("%s with resourceVersion %q", r.verb, r.version)
			}
			if r.accept != "application/json" {
				t.Errorf("Accept: %s", r.accept)
			}
		}
		want := []string{"watchlist"}
		if f.noStreaming {
			want = []string{"watchlist", "list", "watch"}
		}
		if got := f.verbs(); !slices.Equal(got, want) {
			t.Errorf("requests %v, want %v", got, want)
		}
	})
}

// WCH-3: a watch that ends, by time-out or abruptly, goes on from the last seen
// version, without a list and without a pause.
func TestWatchGoesOnAfterItsEnd(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		f.forget()
		time.Sleep(11 * time.Minute) // longer than the longest watch
		f.put("ns/a", `,"spec":1`)
		r.expect(t, "MODIFIED ns/a")

		f.drop()
		f.put("ns/a", `,"spec":2`)
		r.expect(t, "MODIFIED ns/a")
		for _, verb := range f.verbs() {
			if verb != "watch" {
				t.Errorf("requests %v", f.verbs())
				break
			}
		}
		if got := r.reasons(); got != nil {
			t.Errorf("failures: %v", got)
		}
	})
}

// A same-named object is another one (B09): the old one is gone before the new
// one is there.
func TestRecreatedWhileAway(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		old := r.bodies[0].Body.UID
		f.sneakRemove("ns/a")
		f.sneak("ns/a", "")
		f.expire()
		time.Sleep(2 * time.Second)
		r.expect(t, "MISSED ns/a", "ADDED ns/a")
		if r.bodies[1].Body.UID != old || r.bodies[2].Body.UID == old {
			t.Errorf("UIDs: %v, then %v and %v", old, r.bodies[1].Body.UID, r.bodies[2].Body.UID)
		}
		f.remove("ns/a")
		r.expect(t, "DELETED ns/a")
	})
}

// A list that breaks off in its middle: what had been listed stays listed, and is
// not listed again.
func TestStreamedListBreaksOff(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		f.put("ns/b", "")
		f.put("ns/c", "")
		f.noEnd = true
		r := follow(t, f)
		r.expect(t, "LISTED ns/a", "LISTED ns/b", "LISTED ns/c")
		f.put("ns/b", `,"spec":1`) // all of this still before the end of the list
		f.remove("ns/c")
		r.expect(t, "MODIFIED ns/b", "DELETED ns/c")
		f.sneakRemove("ns/a")
		f.sneak("ns/d", "")
		f.noEnd = false
		f.drop()
		time.Sleep(2 * time.Second)
		r.expect(t, "LISTED ns/d", "MISSED ns/a")
		if !r.synced() {
			t.Error("not synced")
		}
	})
}

// Before the end of a streamed list a deletion comes with its last body, too.
func TestDeletedDuringStreamedList(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.noEnd = true
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		f.remove("ns/a")
		f.put("ns/a", "")
		f.mu.Lock()
		f.version++
		f.tell("BOOKMARK", bookmark(f.version, true))
		f.mu.Unlock()
		r.expect(t, "DELETED ns/a", "LISTED ns/a")
		if r.bodies[1].Missed || r.bodies[1].Body.Labels["app"] != "x" {
			t.Errorf("got %s", r.bodies[1].Body.Raw())
		}
		if !r.synced() {
			t.Error("not synced")
		}
		f.remove("ns/a")
		r.expect(t, "DELETED ns/a")
	})
}

// Objects without UID (WCH-8) are told apart by name.
func TestObjectsWithoutUID(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		r := follow(t, f)
		r.expect(t)
		raw := `{"apiVersion":"kopf.dev/v1","kind":"Widget","metadata":{"namespace":"ns","name":"NAME","resourceVersion":"12"}}`
		for _, name := range []string{"a", "b"} {
			f.raw("ADDED", strings.Replace(raw, "NAME", name, 1))
		}
		f.raw("MODIFIED", strings.Replace(strings.Replace(raw, "NAME", "a", 1), "12", "13", 1))
		f.raw("DELETED", strings.Replace(raw, "NAME", "b", 1))
		r.expect(t, "ADDED ns/a", "ADDED ns/b", "MODIFIED ns/a", "DELETED ns/b")

		// Without a version nobody knows whether it has changed.
		f.raw("MODIFIED", `{"kind":"Widget","metadata":{"namespace":"ns","name":"c","uid":"u"}}`)
		f.raw("MODIFIED", `{"kind":"Widget","metadata":{"namespace":"ns","name":"c","uid":"u"}}`)
		r.expect(t, "ADDED ns/c", "MODIFIED ns/c")
	})
}

// LIST in pages, handed out page by page; a relist with a changed, a new and a
// vanished object; and a page that fails is asked for again, not the whole list.
func TestListInPages(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.noStreaming = true
		f.stripKinds = true
		for i := range 1201 {
			f.put("ns/w"+string(rune('a'+i/100))+string(rune('0'+i/10%10))+string(rune('0'+i%10)), "")
		}
		fail := true
		f.script(func(r *http.Request) *answer {
			if r.URL.Query().Get("continue") == "page-1" && fail {
				fail = false
				return status(500, "InternalError", "")
			}
			return nil
		})
		r := follow(t, f)
		synctest.Wait()
		if got := len(r.take()); got != 1000 {
			t.Errorf("%d events before the third page", got)
		}
		time.Sleep(2 * time.Second)
		if got := len(r.take()); got != 201 || !r.synced() {
			t.Errorf("%d more events, synced %v", got, r.synced())
		}
		for _, e := range r.bodies { // WCH-1
			tree, err := e.Body.Tree()
			if err != nil || e.Body.Kind != "Widget" || tree["kind"] != "Widget" || tree["apiVersion"] != "kopf.dev/v1" {
				t.Fatalf("got %s, %v", e.Body.Raw(), err)
			}
		}
		if got := f.verbs(); !slices.Equal(got, []string{"watchlist", "list", "list", "list", "list", "watch"}) {
			t.Errorf("requests %v", got)
		}

		f.sneak("ns/wa00", `,"spec":1`)
		f.sneakRemove("ns/wa01")
		f.sneak("ns/zz", "")
		f.expire()
		time.Sleep(10 * time.Second)
		r.expect(t, "MODIFIED ns/wa00", "ADDED ns/zz", "MISSED ns/wa01")
	})
}

// A continue token that has expired: the pager starts over, and nothing comes twice.
func TestPageExpires(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.noStreaming = true
		for i := range 600 {
			f.put("ns/w"+string(rune('a'+i/100))+string(rune('0'+i/10%10))+string(rune('0'+i%10)), "")
		}
		f.script(func(r *http.Request) *answer {
			if r.URL.Query().Get("continue") != "" {
				f.sneakRemove("ns/wa00") // was in the first page
				f.script(nil)
				return status(410, "Expired", "")
			}
			return nil
		})
		r := follow(t, f)
		synctest.Wait()
		got := r.take()
		if len(got) != 601 || got[600] != "MISSED ns/wa00" {
			t.Errorf("%d events, the last is %s", len(got), got[len(got)-1])
		}
	})
}

func TestNamespaceAndSelectors(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		paths := map[string]bool{}
		f.script(func(r *http.Request) *answer { paths[r.URL.Path] = true; return nil })
		r := follow(t, f, func(o *Options) { o.Namespace, o.LabelSelector, o.FieldSelector = "ns", "app=x", "metadata.name=y" })
		r.expect(t)
		if len(paths) != 1 || !paths["/apis/kopf.dev/v1/namespaces/ns/widgets"] {
			t.Errorf("paths %v", paths)
		}
		for _, request := range f.requests() {
			if !strings.Contains(request.query, "labelSelector=app%3Dx") || !strings.Contains(request.query, "fieldSelector=metadata.name%3Dy") {
				t.Errorf("query %s", request.query)
			}
		}
	})
}

// Run returns as soon as ctx is done, whatever it waits for.
func TestRunEnds(t *testing.T) {
	for name, script := range map[string]func(*http.Request) *answer{
		"watching":    nil,
		"no answer":   func(*http.Request) *answer { return &answer{never: true} },
		"throttled":   func(*http.Request) *answer { return status(429, "TooManyRequests", "") },
		"forbidden":   func(*http.Request) *answer { return status(403, "Forbidden", "") },
		"unreachable": func(*http.Request) *answer { return &answer{cutOff: true} },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, f *fakeAPI) {
				f.put("ns/a", "")
				f.script(script)
				r := follow(t, f)
				time.Sleep(61 * time.Second)
				r.take()
				start := time.Now()
				r.stop()
				if took := time.Since(start); took > 0 {
					t.Errorf("Run needed %s to return", took)
				}
				f.put("ns/a", `,"spec":1`)
				r.expect(t)
			})
		})
	}
}

// It does not even hand out the rest of a page.
func TestRunEndsInList(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		for _, name := range []string{"ns/a", "ns/b", "ns/c", "ns/d"} {
			f.put(name, "")
		}
		ctx, cancel := context.WithCancel(t.Context())
		events := 0
		New(Options{Client: f.kopf(t), GVR: widgets, GVK: widgetKind, OnEvent: func(Event) {
			if events++; events == 2 {
				cancel()
			}
		}}).Run(ctx)
		if events > 3 { // one may be on its way already
			t.Errorf("%d events", events)
		}
	})
}

// In the middle of a streamed list that gets 429 as an event the reflector waits
// without a look at its context.
func TestRunEndsWhileReflectorWaits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.noEnd = true
		r := follow(t, f)
		synctest.Wait()
		for range 8 {
			f.raw("ERROR", status(429, "TooManyRequests", "").body)
			f.amnesia()
			time.Sleep(10 * time.Second)
		}
		f.raw("ERROR", status(429, "TooManyRequests", "").body)
		synctest.Wait()
		start := time.Now()
		r.stop()
		if took := time.Since(start); took > 0 {
			t.Errorf("Run needed %s to return", took)
		}
	})
}

// WCH-6: a stream that is run again lists everything, and knows what has changed.
func TestRunAgain(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		f.put("ns/b", "")
		f.put("ns/c", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a", "LISTED ns/b", "LISTED ns/c")
		r.stop()
		f.put("ns/a", `,"spec":1`)
		f.remove("ns/b")
		f.put("ns/d", "")
		f.forget()
		r.start()
		r.expect(t, "MODIFIED ns/a", "ADDED ns/d", "MISSED ns/b")
		if first := f.requests()[0]; first.version != "" {
			t.Errorf("the list must be fresh, got %v", first)
		}
	})
}

// Every version of every object makes one event, in order, over any number of
// broken connections; handlers never run at the same time.
func TestEveryVersionOnce(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		for i := range 500 {
			f.put("ns/a", `,"spec":1`)
			switch i % 50 {
			case 17:
				f.drop()
			case 34:
				synctest.Wait()
				f.mute()
				time.Sleep(3*time.Minute + time.Second)
			}
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		last := 0
		for _, e := range r.bodies {
			v, err := strconv.Atoi(e.Body.ResourceVersion)
			if err != nil || v <= last {
				t.Fatalf("version %d after %d, %v", v, last, err)
			}
			last = v
		}
		if len(r.bodies) != 501 || r.overlaps > 0 {
			t.Errorf("%d events, %d at the same time as another", len(r.bodies), r.overlaps)
		}
	})
}
