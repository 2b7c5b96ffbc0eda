package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/internal/admission"
	"github.com/kopf-go/kopf/on"
)

type (
	DatabaseSpec struct {
		Engine   string   `json:"engine,omitempty"`
		Replicas int64    `json:"replicas,omitempty"`
		Users    []User   `json:"users,omitempty"`
		Tags     []string `json:"tags,omitempty"`
		Size     Size     `json:"size"`
	}
	User struct {
		Name  string            `json:"name"`
		Admin bool              `json:"admin,omitempty"`
		Notes map[string]string `json:"notes,omitempty"`
	}
	Size struct {
		Disk   string `json:"disk"` // not omitted when empty: absent from most objects all the same
		Memory string `json:"memory,omitempty"`
	}
	Database = kopf.Resource[DatabaseSpec, struct{}]
	A        = kopf.Admission[*Database]
	handler  = func(context.Context, *A) error
)

var (
	databases = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "databases"}
	selected  = on.Resource("example.com/v1", "databases")
	silent    = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// newReviewer has the handlers that register registers, all of them for databases.
func newReviewer(t testing.TB, register func(in on.SelectionOption)) *admission.Reviewer {
	t.Helper()
	reg := kopf.NewRegistry()
	register(on.In(reg))
	if err := reg.Err(); err != nil {
		t.Fatal(err)
	}
	r := &admission.Reviewer{Log: silent}
	for _, h := range reg.Handlers() {
		r.Handlers = append(r.Handlers, admission.Handler{
			Handler: h, Resources: []schema.GroupVersionResource{databases}, Group: h.ID,
		})
	}
	return r
}

// validating has handlers with the ids v0, v1 and so on.
func validating(t testing.TB, fns ...handler) *admission.Reviewer {
	t.Helper()
	return newReviewer(t, func(in on.SelectionOption) {
		for i, fn := range fns {
			on.Validate(fn, selected, in, on.ID(fmt.Sprint("v", i)))
		}
	})
}

// mutating has handlers with the ids m0, m1 and so on.
func mutating(t testing.TB, fns ...handler) *admission.Reviewer {
	t.Helper()
	return newReviewer(t, func(in on.SelectionOption) {
		for i, fn := range fns {
			on.Mutate(fn, selected, in, on.ID(fmt.Sprint("m", i)))
		}
	})
}

const envelope = `{"apiVersion":"example.com/v1","kind":"Database","metadata":{"name":"db","namespace":"ns","uid":"u1"%s},"spec":%s}`

// database is a database in JSON, with a spec, and with more metadata.
func database(spec string, metadata ...string) string {
	more := ""
	for _, m := range metadata {
		more += "," + m
	}
	return fmt.Sprintf(envelope, more, spec)
}

// request is one, without what is empty.
func request(operation, object, old string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		UID: "r1", Operation: admissionv1.Operation(operation), Name: "db", Namespace: "ns",
		Kind:     metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"},
		Resource: metav1.GroupVersionResource(databases),
		UserInfo: authenticationv1.UserInfo{Username: "jane"},
		Object:   runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(old)},
	}
}

func create(spec string) *admissionv1.AdmissionRequest { return request("CREATE", database(spec), "") }

func review(t testing.TB, r *admission.Reviewer, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	response, err := r.Review(context.Background(), request, admission.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if response.UID != request.UID {
		t.Fatalf("the answer is to %q", response.UID)
	}
	if (len(response.Patch) > 0) != (response.PatchType != nil) || !response.Allowed && response.Patch != nil {
		t.Fatalf("patch %s of type %v, allowed: %t", response.Patch, response.PatchType, response.Allowed)
	}
	return response
}

// patched is the object as the API server makes it.
func patched(t testing.TB, request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) string {
	t.Helper()
	if !response.Allowed {
		t.Fatalf("denied: %v", response.Result)
	}
	if response.Patch == nil {
		return string(request.Object.Raw)
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(request.Object.Raw)
	if err != nil {
		t.Fatalf("%s: %v", response.Patch, err)
	}
	return string(after)
}

func sameJSON(t testing.TB, got, want string) {
	t.Helper()
	a, b := exact(t, got), exact(t, want)
	if !diff.Equal(a, b) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func exact(t testing.TB, text string) (tree any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tree
}

func allow(context.Context, *A) error { return nil }
