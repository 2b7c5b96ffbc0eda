package stream

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// B01, X17, WCH-5: after ERROR 410 only what has changed makes events, and what
// vanished meanwhile is deleted.
func TestExpiredInStream(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		for _, name := range []string{"ns/w1", "ns/w2", "ns/w3"} {
			f.put(name, "")
		}
		r := follow(t, f)
		r.expect(t, "LISTED ns/w1", "LISTED ns/w2", "LISTED ns/w3")
		vanished := r.bodies[2].Body

		f.sneak("ns/w1", `,"spec":{"size":2}`)
		f.sneakRemove("ns/w3")
		f.sneak("ns/w4", "")
		f.expire()
		r.expect(t) // there is a pause before the list
		time.Sleep(2 * time.Second)
		r.expect(t, "MODIFIED ns/w1", "ADDED ns/w4", "MISSED ns/w3")

		gone := r.bodies[len(r.bodies)-1].Body
		if gone.UID != vanished.UID || gone.Kind != "Widget" || gone.APIVersion != "kopf.dev/v1" || gone.Labels != nil {
			t.Errorf("got %s", gone.Raw())
		}
		if got := r.reasons(); !slices.Equal(got, []string{"Expired watch"}) {
			t.Errorf("failures: %v", got)
		}
		f.put("ns/w1", "")
		r.expect(t, "MODIFIED ns/w1")
	})
}

// Kopf dies of HTTP 410 on the watch request itself (WCH-3); here it is the same
// as ERROR 410 inside of the watch.
func TestExpiredAtReconnect(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		f.put("ns/b", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a", "LISTED ns/b")
		f.sneakRemove("ns/a")
		f.mu.Lock()
		f.expired = f.version
		f.version++
		f.mu.Unlock()
		f.drop()
		time.Sleep(2 * time.Second)
		r.expect(t, "MISSED ns/a")
		if got := r.reasons(); !slices.Equal(got, []string{"Expired watch"}) {
			t.Errorf("failures: %v", got)
		}
	})
}

// B03: 429, whenever it comes, is a pause, and the pause the server asked for.
func TestThrottled(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		busy := func(r *http.Request) *answer {
			a := status(429, "TooManyRequests", `,"details":{"retryAfterSeconds":20}`)
			a.header = map[string]string{"Retry-After": "20"}
			return a
		}
		f.put("ns/a", "")
		f.script(busy)
		r := follow(t, f)
		time.Sleep(59 * time.Second)
		if n := len(f.requests()); n != 3 {
			t.Errorf("%d requests in one minute, want 3 as Retry-After says 20 s", n)
		}
		if got := r.reasons(); len(got) != 3 || !strings.HasPrefix(got[0], "Throttled") {
			t.Errorf("failures: %v", got)
		}
		f.script(nil)
		time.Sleep(time.Minute)
		r.expect(t, "LISTED ns/a")

		f.script(busy) // now for the watch
		f.drop()
		time.Sleep(5 * time.Minute)
		f.put("ns/a", `,"spec":1`)
		f.script(nil)
		f.forget()
		time.Sleep(time.Minute)
		r.expect(t, "MODIFIED ns/a")
		if got := f.verbs(); !slices.Equal(got, []string{"watch"}) {
			t.Errorf("429 must not cost a list, requests %v", got)
		}
	})
}

// 429 as an ERROR event inside of the watch, without a list either.
func TestThrottledInStream(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		f.forget()
		f.raw("ERROR", status(429, "TooManyRequests", "").body)
		f.amnesia()
		f.put("ns/a", `,"spec":1`)
		time.Sleep(2 * time.Second)
		r.expect(t, "MODIFIED ns/a")
		if got := f.verbs(); !slices.Equal(got, []string{"watch"}) {
			t.Errorf("requests %v", got)
		}
		if got := r.reasons(); !slices.Equal(got, []string{"Throttled watch"}) {
			t.Errorf("failures: %v", got)
		}
	})
}

// B02, WCH-4: a connection over which nothing comes is judged dead after a while,
// and what has been missed comes once, from the last seen version.
func TestHalfDeadConnection(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/w1", `,"spec":{"size":1}`)
		r := follow(t, f)
		r.expect(t, "LISTED ns/w1")
		time.Sleep(30 * time.Second)
		f.mute()
		f.forget()
		f.put("ns/w1", `,"spec":{"size":2}`)
		time.Sleep(2 * time.Minute)
		r.expect(t)
		if age := time.Since(r.LastActivity()); age < 2*time.Minute {
			t.Errorf("age of last activity is %s", age)
		}
		time.Sleep(time.Minute)
		r.expect(t, "MODIFIED ns/w1")
		if got := f.verbs(); !slices.Equal(got, []string{"watch"}) {
			t.Errorf("requests %v", got)
		}
		if got := r.reasons(); !slices.Equal(got, []string{"Silent watch"}) {
			t.Errorf("failures: %v", got)
		}
		if age := time.Since(r.LastActivity()); age > time.Minute {
			t.Errorf("age of last activity is %s", age)
		}
	})
}

// B02: bookmarks are a sign of life, and they move the version to go on from.
func TestBookmarksKeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		for range 60 {
			time.Sleep(time.Minute)
			f.sneak("elsewhere/x", "") // the version goes on without news for us
			if age := time.Since(r.LastActivity()); age > time.Minute {
				t.Fatalf("age of last activity is %s", age)
			}
		}
		f.mu.Lock()
		f.expired = f.version - 10 // would matter without bookmarks
		f.mu.Unlock()
		f.forget()
		f.drop()
		r.expect(t)
		if got := slices.Compact(f.verbs()); !slices.Equal(got, []string{"watch"}) {
			t.Errorf("requests %v", got)
		}
		if got := r.reasons(); got != nil {
			t.Errorf("failures: %v", got)
		}
	})
}

// A server may accept the request for a streamed list without knowing how to end
// one. Then nothing would ever be synced.
func TestStreamedListWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.noEnd, f.noBookmarks = true, true
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		if r.synced() {
			t.Error("synced too early")
		}
		time.Sleep(4 * time.Minute)
		r.expect(t)
		if !r.synced() {
			t.Error("not synced")
		}
		if got := f.verbs(); !slices.Equal(got, []string{"watchlist", "list", "watch"}) {
			t.Errorf("requests %v", got)
		}
		f.put("ns/a", `,"spec":1`)
		r.expect(t, "MODIFIED ns/a")
	})
}

// B02: a request that nobody answers must not block the stream for ever.
func TestNoAnswer(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		f.script(func(*http.Request) *answer { return &answer{never: true} })
		r := follow(t, f)
		time.Sleep(10 * time.Minute)
		if got := r.reasons(); len(got) < 2 || got[0] != "Silent watch" || got[1] != "Silent list" {
			t.Errorf("failures: %v", got)
		}
		f.script(nil)
		time.Sleep(5 * time.Minute)
		r.expect(t, "LISTED ns/a")
	})
}

// A connection that breaks before the answer, or can't be made, costs no list.
func TestUnreachable(t *testing.T) {
	for name, fail := range map[string]func(*fakeAPI){
		"broken": func(f *fakeAPI) { f.script(func(*http.Request) *answer { return &answer{cutOff: true} }) },
		"refused": func(f *fakeAPI) {
			f.client.CloseIdleConnections()
			f.listener.refuse(os.NewSyscallError("connect", syscall.ECONNREFUSED))
		},
		"failing": func(f *fakeAPI) {
			f.script(func(*http.Request) *answer { return status(503, "ServiceUnavailable", "") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, f *fakeAPI) {
				f.put("ns/a", "")
				r := follow(t, f)
				r.expect(t, "LISTED ns/a")
				fail(f)
				f.drop()
				time.Sleep(10 * time.Minute)
				reasons := r.reasons()
				if len(reasons) < 10 || len(reasons) > 40 {
					t.Errorf("%d attempts in 10 minutes", len(reasons))
				}
				for _, reason := range reasons {
					if want := map[string]string{"failing": "Failed watch"}[name]; reason != "Unreachable watch" && reason != want {
						t.Errorf("failure %s", reason)
					}
				}
				f.put("ns/a", `,"spec":1`)
				f.forget()
				f.script(nil)
				f.listener.refuse(nil)
				time.Sleep(time.Minute)
				r.expect(t, "MODIFIED ns/a")
				if got := f.verbs(); !slices.Equal(got, []string{"watch"}) {
					t.Errorf("requests %v", got)
				}
			})
		})
	}
}

// An API server that comes up after the operator: lists are streamed nevertheless.
func TestUnreachableAtStart(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		f.listener.refuse(&net.DNSError{Err: "no such host", Name: "fake", IsNotFound: true})
		r := follow(t, f)
		time.Sleep(5 * time.Minute)
		if got := r.reasons(); len(got) < 6 || got[0] != "Unreachable watch" {
			t.Errorf("failures: %v", got)
		}
		f.listener.refuse(nil)
		time.Sleep(time.Minute)
		r.expect(t, "LISTED ns/a")
		if got := f.verbs(); !slices.Equal(got, []string{"watchlist"}) {
			t.Errorf("requests %v", got)
		}
	})
}

// The short pause of an expired version is not that of what fails thereafter.
func TestForbiddenAfterExpired(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		f.script(func(*http.Request) *answer { return status(403, "Forbidden", "") })
		f.expire()
		time.Sleep(10 * time.Minute)
		if reasons := r.reasons(); len(reasons) > 60 {
			t.Errorf("%d failures in ten minutes", len(reasons))
		}
	})
}

// A missing permission is reported with its verb at each attempt, in no storm, and
// the stream comes alive when it is granted.
func TestForbidden_ORC4(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		f.script(func(*http.Request) *answer { return status(403, "Forbidden", "") })
		r := follow(t, f)
		time.Sleep(10 * time.Minute)
		var forbidden Failure
		r.mu.Lock()
		forbidden = r.failures[1]
		r.mu.Unlock()
		if !apierrors.IsForbidden(forbidden) || !apierrors.IsForbidden(forbidden.Err) || forbidden.Verb != "list" {
			t.Errorf("got %v", forbidden)
		}
		reasons := r.reasons()
		if len(reasons) > 50 || reasons[0] != "Forbidden watch" || reasons[1] != "Forbidden list" {
			t.Errorf("%d failures: %v", len(reasons), reasons)
		}
		f.script(nil)
		time.Sleep(time.Minute)
		r.expect(t, "LISTED ns/a")

		time.Sleep(5 * time.Minute) // all is well again, so the next pause is short
		f.sneak("ns/a", `,"spec":1`)
		f.expire()
		time.Sleep(2 * time.Second)
		r.expect(t, "MODIFIED ns/a")
	})
}

// Permission to list but not to watch: better than nothing.
func TestForbiddenToWatch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		f.script(func(r *http.Request) *answer {
			if verbOf(r) == "list" {
				return nil
			}
			return status(403, "Forbidden", "")
		})
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		f.put("ns/a", `,"spec":1`)
		f.put("ns/b", "")
		time.Sleep(time.Minute)
		r.expect(t, "MODIFIED ns/a", "ADDED ns/b")
		for _, reason := range r.reasons() {
			if reason != "Forbidden watch" {
				t.Errorf("failure: %s", reason)
			}
		}
	})
}

// A CRD that goes and comes: its objects are deleted, and created again.
func TestResourceGoesAndComes(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		f.remove("ns/a")
		f.script(func(*http.Request) *answer {
			return &answer{code: 404, header: map[string]string{"Content-Type": "text/plain"}, body: "404 page not found"}
		})
		f.drop()
		time.Sleep(time.Minute)
		r.expect(t, "DELETED ns/a")
		reasons := r.reasons()
		if !slices.Contains(reasons, "NotServed watch") || !slices.Contains(reasons, "NotServed list") {
			t.Errorf("failures: %v", reasons)
		}
		f.put("ns/a", "")
		f.script(nil)
		time.Sleep(time.Minute)
		r.expect(t, "ADDED ns/a")
	})
}

// The server was restored from a backup: versions go backwards.
func TestRestoredFromBackup(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		f.version = 1000
		f.put("ns/a", "")
		f.put("ns/b", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a", "LISTED ns/b")
		f.mu.Lock()
		f.version, f.history = 500, nil
		f.mu.Unlock()
		f.sneakRemove("ns/b")
		f.sneak("ns/a", "")
		f.script(func(r *http.Request) *answer {
			if version := r.URL.Query().Get("resourceVersion"); len(version) == 4 {
				return status(504, "Timeout", `,"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1}`)
			}
			return nil
		})
		f.drop()
		time.Sleep(time.Minute)
		r.expect(t, "MODIFIED ns/a", "MISSED ns/b")
	})
}

// B04: one object that can't be read, for all others nothing changes.
func TestUnreadableObject(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		spoil := func(name string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.put1(name, "", false)
			o := f.objects[name]
			o.Raw = []byte(strings.Replace(string(o.Raw), `"app":"x"`, `"app":7`, 1))
			f.tell("MODIFIED", o.Raw)
		}
		f.put("ns/a", "")
		spoil("ns/bad")
		f.put("ns/c", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a", "LISTED ns/c")
		if !r.synced() {
			t.Error("not synced")
		}
		if f := r.failures[0]; f.Object.Name != "bad" || f.Object.UID == "" || !strings.Contains(f.Error(), "labels") {
			t.Errorf("got %v", f)
		}
		if got := r.reasons(); !slices.Equal(got, []string{"Unreadable"}) {
			t.Errorf("failures: %v", got)
		}

		spoil("ns/a") // one that was readable: stays alive, even over a list
		f.put("ns/c", `,"spec":1`)
		f.expire()
		time.Sleep(2 * time.Second)
		r.expect(t, "MODIFIED ns/c")
		if got := r.reasons(); !slices.Equal(got, []string{"Unreadable", "Expired watch", "Unreadable", "Unreadable"}) {
			t.Errorf("failures: %v", got)
		}
		f.put("ns/a", "")
		f.put("ns/bad", "") // seen for the first time
		r.expect(t, "MODIFIED ns/a", "ADDED ns/bad")

		spoil("ns/a")
		f.remove("ns/a")
		r.expect(t, "MISSED ns/a")
		f.put("ns/a", "")
		spoil("ns/a")
		f.sneakRemove("ns/a")
		f.expire()
		time.Sleep(10 * time.Second)
		r.expect(t, "ADDED ns/a", "MISSED ns/a")
	})
}

// B04: not even an object at all, and without a version to go on from.
func TestUnreadableEvent(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		version := f.version
		f.raw("MODIFIED", `"nonsense"`)
		f.raw("MODIFIED", "{\"apiVersion\":\"kopf.dev/v1\",\"kind\":\"Widget\",\"metadata\":{\"namespace\":\"ns\",\"name\":\"b\xff\",\"uid\":\"u\",\"resourceVersion\":\"12\"}}")
		r.expect(t)
		if got := r.reasons(); !slices.Equal(got, []string{"Unreadable", "Unreadable"}) {
			t.Errorf("failures: %v", got)
		}
		f.amnesia()
		f.raw("MODIFIED", `[]`)
		r.expect(t)
		f.forget()
		f.amnesia()
		f.drop()
		f.put("ns/a", `,"spec":1`)
		r.expect(t, "MODIFIED ns/a")
		if got := f.requests(); len(got) != 1 || got[0].verb != "watch" || got[0].version == "" || version == 0 {
			t.Errorf("requests %v", got)
		}
	})
}

// What is not JSON ends the watch, and the next list makes up for it.
func TestGarbageInWatch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		r := follow(t, f)
		r.expect(t, "LISTED ns/a")
		f.raw("MODIFIED", `{]`)
		f.amnesia()
		f.put("ns/a", `,"spec":1`)
		time.Sleep(2 * time.Second)
		r.expect(t, "MODIFIED ns/a")
		if got := r.reasons(); !slices.Equal(got, []string{"Failed watch"}) {
			t.Errorf("failures: %v", got)
		}
	})
}

// What client-go calls errors and warnings is at debug level here.
func TestNothingIsLoggedAboveDebug(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		var log bytes.Buffer
		handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
		f.put("ns/a", "")
		r := follow(t, f, func(o *Options) { o.Logger = slog.New(handler) })
		r.expect(t, "LISTED ns/a")
		f.raw("MODIFIED", `{]`)
		f.amnesia()
		f.script(func(*http.Request) *answer { return status(403, "Forbidden", "") })
		time.Sleep(time.Minute)
		r.stop()
		got := log.String()
		if strings.Contains(got, "level=INFO") || strings.Contains(got, "level=WARN") || strings.Contains(got, "level=ERROR") {
			t.Error(got)
		}
		if !strings.Contains(got, "reason=Forbidden") || !strings.Contains(got, "watch ended with error") || !strings.Contains(got, "resource=widgets.kopf.dev") {
			t.Error(got)
		}
	})
}
