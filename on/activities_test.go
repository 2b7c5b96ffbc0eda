package on_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/activities"
	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/on"
)

func start(context.Context, *kopf.Activity) error                          { return nil }
func login(context.Context, *kopf.Login) (*kopf.Credentials, error)        { return nil, nil }
func probe(context.Context, *kopf.Probe) (map[string]int, error)           { return nil, nil }
func strange(context.Context, *kopf.Probe) (chan int, error)               { return nil, nil }
func unsayable(context.Context, *kopf.Probe) (func(*kopf.Activity), error) { return nil, nil }

// ACT-1, HID-1, MEM-7: what handlers of activities are, with all options that they take.
func TestActivities_ACT1_HID1_MEM7(t *testing.T) {
	for kind, register := range map[registry.Kind]func(...on.ActivityOption){
		registry.Startup: func(o ...on.ActivityOption) { on.Startup(start, o...) },
		registry.Cleanup: func(o ...on.ActivityOption) { on.Cleanup(start, o...) },
		registry.Login:   func(o ...on.ActivityOption) { on.Login(login, o...) },
		registry.Probe:   func(o ...on.ActivityOption) { on.Probe(probe, o...) },
	} {
		name := map[registry.Kind]string{registry.Login: "login", registry.Probe: "probe"}[kind]
		if name == "" {
			name = "start"
		}
		reg := kopf.NewRegistry()
		register(on.In(reg))
		register(on.In(reg), on.ID("x"), on.Param(7), on.Errors(on.Permanent), on.Timeout(time.Hour), on.Retries(3), on.Backoff(time.Second))
		if err := reg.Err(); err != nil {
			t.Fatal(err)
		}
		plain, full := reg.Handlers()[0], reg.Handlers()[1]
		if plain.Kind != kind || plain.ID != name || plain.Retries != -1 || plain.Backoff != -1 || plain.Timeout != 0 || plain.Errors != registry.ErrorsUnset || plain.Param != nil {
			t.Errorf("%s: %+v", kind, plain)
		}
		if full.Kind != kind || full.ID != "x" || full.Retries != 3 || full.Backoff != time.Second || full.Timeout != time.Hour || full.Errors != registry.ErrorsPermanent || full.Param != 7 {
			t.Errorf("%s: %+v", kind, full)
		}
		if !plain.Activity() || plain.Keeps() || plain.Admission() || plain.Background() || !plain.Selector.Empty() {
			t.Errorf("%s: taken for another kind", kind)
		}
		if !strings.Contains(plain.Source, "/activities_test.go:") {
			t.Errorf("%s: the place is %s", kind, plain.Source)
		}
	}
}

func TestMistakesInActivities(t *testing.T) {
	for name, c := range map[string]struct {
		register func(in on.InOption)
		mistake  string
	}{
		"no function":           {func(in on.InOption) { on.Startup(nil, in) }, "startup handler : it has no function"},
		"no function for login": {func(in on.InOption) { on.Login(nil, in) }, "login handler : it has no function"},
		"no function for probe": {func(in on.InOption) { on.Probe[int](nil, in) }, "probe handler : it has no function"},
		"nil option":            {func(in on.InOption) { on.Cleanup(start, in, nil) }, "cleanup handler start: an option is nil"},
		"wrong option":          {func(in on.InOption) { on.Cleanup(start, in, on.Retries(-1)) }, "on.Retries(-1) is negative"},
		"same id":               {func(in on.InOption) { on.Startup(start, in); on.Startup(start, in) }, "startup handler start: its id is taken by the registration at"},
		"a channel":             {func(in on.InOption) { on.Probe(strange, in) }, "it returns chan int, which is nothing that JSON has"},
		"a function":            {func(in on.InOption) { on.Probe(unsayable, in) }, "which is nothing that JSON has"},
	} {
		reg := kopf.NewRegistry()
		c.register(on.In(reg))
		err := reg.Err()
		if err == nil || !strings.Contains(err.Error(), c.mistake) || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), "/activities_test.go:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	reg := kopf.NewRegistry() // different activities share nothing
	on.Startup(start, on.In(reg))
	on.Cleanup(start, on.In(reg))
	if err := reg.Err(); err != nil {
		t.Error(err)
	}
}

// Credentials that are typed nil, or come with an error, are none (AUTH-2).
func TestLoginReturnsNothing_AUTH2(t *testing.T) {
	given := &kopf.Credentials{}
	for name, c := range map[string]struct {
		credentials *kopf.Credentials
		err         error
		want        any
	}{
		"nil": {nil, nil, nil}, "some": {given, nil, given}, "an error, too": {given, context.Canceled, nil},
	} {
		reg := kopf.NewRegistry()
		on.Login(func(context.Context, *kopf.Login) (*kopf.Credentials, error) { return c.credentials, c.err }, on.In(reg))
		call := &registry.Call{Activity: &registry.Activity{Settings: &kopf.Settings{}}}
		if err := reg.Handlers()[0].Invoke(t.Context(), call); err != c.err || call.Result != c.want {
			t.Errorf("%s: %v, %v", name, call.Result, err)
		}
	}
}

// Arguments that a test has made by hand have memos, and default credentials.
func TestActivitiesByHand(t *testing.T) {
	memo := kopf.NewMemo(func() *int { return new(int) })
	a := &activities.Activity{}
	*memo.Of(a) = 3
	if *memo.Operator(a) != 3 {
		t.Error(*memo.Operator(a))
	}
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if c, err := new(activities.Login).Default(); err == nil {
		t.Error(c)
	}
}
