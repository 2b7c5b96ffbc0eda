package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kopf-go/kopf/internal/admission"
)

func reviewOf(version, object, more string) string {
	return `{"apiVersion":"admission.k8s.io/` + version + `","kind":"AdmissionReview","request":{"uid":"r1","operation":"CREATE","name":"db",` +
		`"resource":{"group":"example.com","version":"v1","resource":"databases"},"userInfo":{"username":"jane"},"object":` + object + more + `}}`
}

// T160, ADM-9: the answer is in the version of the question.
func TestVersions_T160_ADM9(t *testing.T) {
	r := mutating(t, func(_ context.Context, a *A) error { a.Object.Spec.Engine = "x"; a.Warn("w"); return nil })
	for version, body := range map[string]string{
		"v1":      reviewOf("v1", database(`{}`), ""),
		"v1beta1": reviewOf("v1beta1", database(`{}`), `,"oldObject":null,"unknown":[1]`),
		"none":    strings.Replace(reviewOf("v1", database(`{}`), ""), `"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`, "", 1),
	} {
		raw, err := r.Answer(context.Background(), strings.NewReader(body), admission.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		if version == "none" {
			version = "v1"
		}
		// PatchType and patch as base64 are what encoding the API's own type makes.
		var answer struct {
			admissionv1.AdmissionReview
			Response map[string]any `json:"response"`
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			t.Fatal(err)
		}
		if answer.APIVersion != "admission.k8s.io/"+version || answer.Kind != "AdmissionReview" || answer.Request != nil ||
			answer.Response["uid"] != "r1" || answer.Response["allowed"] != true || answer.Response["patchType"] != "JSONPatch" ||
			answer.Response["patch"] != "W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvZW5naW5lIiwidmFsdWUiOiJ4In1d" {
			t.Errorf("%s: %s", version, raw)
		}
	}
}

// ADM-3, ADM-4: what is no review is an error with a code.
func TestMalformed_ADM3_ADM4(t *testing.T) {
	r := validating(t, allow)
	good := reviewOf("v1", database(`{}`), "")
	for name, c := range map[string]struct {
		body string
		code int
		want string
	}{
		"nothing":           {"", 400, "not readable"},
		"no JSON":           {"<xml/>", 400, "not readable"},
		"half of one":       {good[:100], 400, "not readable"},
		"two":               {good + good, 400, "not readable"},
		"a list":            {"[]", 400, "not readable"},
		"null":              {"null", 400, "no request"},
		"wrong type":        {strings.Replace(good, `"r1"`, `1`, 1), 400, "not readable"},
		"deep":              {reviewOf("v1", strings.Repeat("[", 20000)+strings.Repeat("]", 20000), ""), 400, "not readable"},
		"another version":   {reviewOf("v2", `{}`, ""), 400, "where an AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1 is expected"},
		"another kind":      {`{"apiVersion":"v1","kind":"Pod"}`, 400, "got v1, Pod"},
		"no request":        {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{}}`, 400, "no request"},
		"ADM-4 no user":     {strings.Replace(good, `"userInfo":{"username":"jane"},`, "", 1), 400, "no userInfo"},
		"ADM-4 null user":   {strings.Replace(good, `{"username":"jane"}`, "null", 1), 400, "no userInfo"},
		"ADM-4 no objects":  {reviewOf("v1", `null`, ""), 400, "neither an object nor an old one"},
		"ADM-4 resource":    {strings.Replace(good, `"databases"`, `"others"`, 1), 404, "others.example.com"},
		"ADM-4 no resource": {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"userInfo":{}}}`, 404, "no handler"},
		"an object's type":  {reviewOf("v1", `7`, ""), 400, "object of the request"},
		"too large":         {strings.Repeat(" ", admission.Limit+1), 413, "more than 8388608 bytes"},
	} {
		_, err := r.Answer(context.Background(), strings.NewReader(c.body), admission.Facts{})
		var refused *admission.Error
		if !errors.As(err, &refused) || refused.Code != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := admission.Decode(iotest.ErrReader(io.ErrUnexpectedEOF)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	var refused *admission.Error
	limited := http.MaxBytesReader(nil, io.NopCloser(strings.NewReader(good)), 10)
	if _, err := admission.Decode(limited); !errors.As(err, &refused) || refused.Code != 413 {
		t.Error(err)
	}
}

// endless is a body that never ends.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '['
	}
	e.read += len(p)
	return len(p), nil
}

// No more is read, or kept, than is allowed.
func TestHugeReview(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	body := new(endless)
	if _, err := admission.Decode(body); err == nil {
		t.Fatal("it was read")
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; body.read > admission.Limit+1<<20 || used > 8*admission.Limit {
		t.Errorf("%d bytes were read, %d allocated", body.read, used)
	}
	large := database(`{"tags":["` + strings.Repeat("x", 3<<20) + `"]}`)
	if _, err := admission.Decode(strings.NewReader(reviewOf("v1", large, `,"oldObject":`+large))); err != nil {
		t.Error(err)
	}
}

// Whatever comes is answered, or is an error with a code; nothing panics, and what handlers
// have changed is a patch that applies.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{
		reviewOf("v1", database(`{}`), ""),
		reviewOf("v1beta1", database(`{"users":[{"name":"a","x":[1,{}]}]}`), `,"oldObject":{}`),
		reviewOf("v1", `{"spec":null,"metadata":null}`, `,"dryRun":true,"subResource":"status"`),
		reviewOf("v1", `{"metadata":{"labels":{"a":null},"deletionTimestamp":"x"}}`, ""),
		strings.Replace(reviewOf("v1", `{}`, `,"oldObject":`+database(`{"a":1e400}`)), "CREATE", "DELETE", 1),
		strings.Replace(reviewOf("v1", database(`{"n":1e999999999}`), `,"oldObject":`+database(`{"n":1}`, `"deletionTimestamp":"2026-01-01T00:00:00Z"`)), "CREATE", "UPDATE", 1),
		`{"request":{}}`, `null`, `[]`, `{"request":{"userInfo":{},"object":"` + "\xff" + `"}}`,
	} {
		f.Add([]byte(seed))
	}
	r := mutating(f, func(_ context.Context, a *A) error {
		a.Object.Spec.Users = append([]User{{Name: "first"}}, a.Object.Spec.Users...)
		a.Object.Spec.Engine += "x"
		return nil
	})
	more := validating(f, func(_ context.Context, a *A) error { _ = a.Diff.String(); return nil })
	r.Handlers = append(r.Handlers, more.Handlers...)
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, err := r.Answer(context.Background(), bytes.NewReader(body), admission.Facts{})
		if err != nil {
			var refused *admission.Error
			if !errors.As(err, &refused) || refused.Code < 400 || refused.Code > 599 || refused.Error() == "" {
				t.Fatalf("got %v", err)
			}
			return
		}
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(raw, &answer); err != nil || answer.Response == nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if answer.Response.Allowed == (answer.Response.Result != nil) {
			t.Fatalf("got %s", raw)
		}
		if q, err := admission.Decode(bytes.NewReader(body)); err == nil && answer.Response.Patch != nil {
			patched(t, q.Request, answer.Response)
		}
	})
}
