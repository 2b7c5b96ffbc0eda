package command

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kopf-go/kopf/daemons"
	"github.com/kopf-go/kopf/diff"
	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/registry"
)

// some are handlers with everything that there is to print.
func some(t *testing.T) []*registry.Handler {
	t.Helper()
	cron, err := daemons.ParseCron("30 3 * * 1-5")
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context, *registry.Call) (bool, error) { return false, nil }
	databases := registry.Selector{By: registry.ByName, Name: "databases", Group: "example.com", HasGroup: true, Version: "v1"}
	return []*registry.Handler{
		{
			Kind: registry.Update, ID: "resize/spec.size", Selector: databases, Source: "op/main.go:12", Retries: 3, Timeout: 5 * time.Minute, Backoff: 10 * time.Second,
			Errors: registry.ErrorsPermanent, Param: corev1.Secret{}, Handles: []any{1, 2}, Sensitive: []diff.Path{{"spec", "password"}},
			Labels: []registry.Criterion{{Key: "tier", Match: filters.Any("gold", "silver")}}, Annotations: []registry.Criterion{{Key: "a.b/c", Match: filters.Present}},
			Field: diff.Path{"spec", "size"}, Old: filters.Equal(1), New: filters.Not(3), When: never,
		},
		{Kind: registry.Resume, ID: "resume", Selector: databases, Source: "op/main.go:13", Retries: -1, Backoff: -1, Deleted: true, Value: filters.Absent},
		{Kind: registry.Delete, ID: "release", Selector: databases, Source: "op/main.go:14", Retries: -1, Backoff: -1, Optional: true},
		{
			Kind: registry.Timer, ID: "tick", Selector: registry.Selector{By: registry.ByEverything}, Source: "op/main.go:15", Retries: -1, Backoff: -1,
			Schedule: daemons.Schedule{Interval: time.Minute, Sharp: true, Idle: time.Hour}, Jitter: 0,
		},
		{Kind: registry.Timer, ID: "nightly", Selector: databases, Source: "op/main.go:16", Retries: -1, Backoff: -1, Schedule: daemons.Schedule{Cron: cron}, Jitter: -1},
		{
			Kind: registry.Daemon, ID: "watch", Selector: databases, Source: "op/main.go:17", Retries: -1, Backoff: -1, Finalize: true,
			Spawn:        func(context.Context, *registry.Call) (time.Duration, error) { return 0, nil },
			Cancellation: daemons.Cancellation{Backoff: time.Second, Timeout: 2 * time.Second, Polling: 3 * time.Second},
		},
		{
			Kind: registry.Validate, ID: "check", Selector: databases, Source: "op/main.go:18", Retries: -1, Backoff: -1,
			Operations: []string{"UPDATE", "CREATE"}, Subresource: "scale", Persistent: true, SideEffects: true, IgnoreFailures: true,
		},
		{Kind: registry.Policy, ID: "rule", Selector: databases, Source: "op/main.go:19", Retries: -1, Backoff: -1, Rule: registry.Rule{Expression: "object.spec.size > 0"}},
		{Kind: "startup", ID: "connect", Source: "op/main.go:20", Retries: 0, Backoff: -1},
	}
}

func printed(t *testing.T, format string) string {
	t.Helper()
	p := complete(nil)
	p.Handlers = func() ([]*registry.Handler, error) { return some(t), nil }
	code, out, stderr := call(t, p, "handlers -o "+format)
	if code != OK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	return out
}

const table = `KIND ID RESOURCE FILTERS SOURCE
update resize/spec.size databases.v1.example.com label tier=Any("gold", "silver"), annotation a.b/c=Present, field=spec.size, old=1, new=Not(3), when op/main.go:12
resume resume databases.v1.example.com value=Absent op/main.go:13
delete release databases.v1.example.com - op/main.go:14
timer tick everything - op/main.go:15
timer nightly databases.v1.example.com - op/main.go:16
daemon watch databases.v1.example.com - op/main.go:17
validate check databases.v1.example.com operations=CREATE UPDATE, subresource=scale op/main.go:18
policy rule databases.v1.example.com rule=object.spec.size > 0 op/main.go:19
startup connect - - op/main.go:20
`

// What is registered is told to people.
func TestHandlersAsTable(t *testing.T) {
	got := regexp.MustCompile(` +`).ReplaceAllString(printed(t, "table"), " ")
	if got != table {
		t.Errorf("got\n%s", got)
	}
	wide := strings.Split(printed(t, "wide"), "\n")
	for i, want := range []string{
		"OPTIONS", "retries=3, timeout=5m, backoff=10s, errors=permanent, param=v1.Secret, uses=2 indices, sensitive=spec.password", "deleted", "optional",
		"interval=1m, sharp, idle=1h, jitter=0s", "cron=30 3 * * 1-5",
		"initial-delay, finalize, cancellation-backoff=1s, cancellation-timeout=2s, cancellation-polling=3s",
		"persistent, side-effects, ignore-failures", "-", "retries=0",
	} {
		if !strings.Contains(wide[i], "  "+want+"  ") {
			t.Errorf("%s is not in %s", want, wide[i])
		}
	}
}

// The same, for programs.
func TestHandlersAsJSONAndYAML(t *testing.T) {
	var fromJSON, fromYAML []listed
	text := printed(t, "json")
	if err := json.Unmarshal([]byte(text), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(printed(t, "yaml")), &fromYAML); err != nil {
		t.Fatal(err)
	}
	for _, all := range [][]listed{fromJSON, fromYAML} {
		first := all[0]
		if len(all) != 9 || first.Kind != "update" || first.Resource != "databases.v1.example.com" || first.Source != "op/main.go:12" ||
			first.Options["retries"] != "3" || first.Options["timeout"] != "5m" || len(first.Filters) != 6 ||
			first.Filters[0] != (filter{On: "label", Key: "tier", Match: `Any("gold", "silver")`}) || first.Filters[5] != (filter{On: "when"}) {
			t.Errorf("%+v", first)
		}
	}
	if !strings.Contains(text, "object.spec.size > 0") {
		t.Error("HTML is escaped:", text)
	}
	p := complete(nil)
	p.Handlers = func() ([]*registry.Handler, error) { return nil, nil }
	if _, out, _ := call(t, p, "handlers -o json"); out != "[]\n" {
		t.Errorf("no handlers: %q", out)
	}
	p.Handlers = func() ([]*registry.Handler, error) { return nil, errors.New("wrong") }
	if code, _, stderr := call(t, p, "handlers"); code != Failed || stderr != "error: wrong\n" {
		t.Errorf("%d %s", code, stderr)
	}
}
