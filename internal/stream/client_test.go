package stream

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Nobody else writes into the bytes of an object, and they keep nothing else alive.
func TestBytesAreNotShared(t *testing.T) {
	both(t, func(t *testing.T, f *fakeAPI) {
		for _, name := range []string{"ns/a", "ns/b", "ns/c"} {
			f.put(name, `,"spec":"`+strings.Repeat(name, 1000)+`"`)
		}
		r := follow(t, f)
		synctest.Wait()
		f.put("ns/a", `,"spec":"`+strings.Repeat("x", 5000)+`"`)
		synctest.Wait()
		for i, e := range r.bodies {
			b := e.Body
			if want := `"name":"` + b.Name + `"`; !strings.Contains(string(b.Raw()), want) || i < 3 && !strings.Contains(string(b.Raw()), "ns/"+b.Name+"ns/"+b.Name) {
				t.Errorf("bytes of %s were overwritten: %.200s", b.Name, b.Raw())
			}
			if slack := cap(b.Raw()) - len(b.Raw()); slack > len(b.Raw())/4 {
				t.Errorf("%d bytes are kept for %d", cap(b.Raw()), len(b.Raw()))
			}
		}
	})
}

func TestGetAndPatch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", `,"spec":{"size":1}`)
		client := f.kopf(t)
		ctx := t.Context()
		b, err := client.Get(ctx, widgets, "ns", "a")
		if err != nil || b.Name != "a" || b.Kind != "Widget" || !strings.Contains(string(b.Raw()), `"size":1`) {
			t.Errorf("got %v, %v", b, err)
		}
		if _, err = client.Get(ctx, widgets, "ns", "none"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}

		var path, kind string
		f.script(func(r *http.Request) *answer {
			path, kind = r.URL.Path, r.Header.Get("Content-Type")
			return nil
		})
		if b, err = client.Patch(ctx, widgets, "ns", "a", types.MergePatchType, []byte(`{}`), "status"); err != nil || b.Name != "a" {
			t.Errorf("got %v, %v", b, err)
		}
		if path != "/apis/kopf.dev/v1/namespaces/ns/widgets/a/status" || kind != "application/merge-patch+json" {
			t.Errorf("sent %s as %s", path, kind)
		}

		for code, is := range map[int]func(error) bool{
			409: apierrors.IsConflict, 422: apierrors.IsInvalid, 403: apierrors.IsForbidden,
		} {
			f.script(func(*http.Request) *answer {
				return status(code, map[int]string{409: "Conflict", 422: "Invalid", 403: "Forbidden"}[code], "")
			})
			_, err = client.Patch(ctx, widgets, "ns", "a", types.MergePatchType, []byte(`{}`))
			var status apierrors.APIStatus
			if !is(err) || !errors.As(err, &status) || status.Status().Message != "scripted" {
				t.Errorf("%d: got %#v", code, err)
			}
		}

		f.script(func(*http.Request) *answer { return &answer{code: 200, body: `{"metadata":{"labels":7}}`} })
		if _, err = client.Get(ctx, widgets, "ns", "a"); err == nil {
			t.Error("no error for an unreadable object")
		}
	})
}

// A patch that was turned away is sent again after the time the server asked for;
// one whose connection broke may have been applied, and is not.
func TestPatchRetries(t *testing.T) {
	bubble(t, func(t *testing.T, f *fakeAPI) {
		f.put("ns/a", "")
		n := 0
		f.script(func(*http.Request) *answer {
			if n++; n > 2 {
				return nil
			}
			a := status(429, "TooManyRequests", "")
			a.header = map[string]string{"Retry-After": "7"}
			return a
		})
		start := time.Now()
		_, err := f.kopf(t).Patch(t.Context(), widgets, "ns", "a", types.MergePatchType, []byte(`{}`))
		if err != nil || n != 3 || time.Since(start) != 14*time.Second {
			t.Errorf("%d attempts in %s, %v", n, time.Since(start), err)
		}
		n = 0
		f.script(func(*http.Request) *answer { n++; return &answer{cutOff: true} })
		_, err = f.kopf(t).Patch(t.Context(), widgets, "ns", "a", types.MergePatchType, []byte(`{}`))
		if err == nil || n != 1 {
			t.Errorf("%d attempts, %v", n, err)
		}
	})
}
