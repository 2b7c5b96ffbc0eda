package command

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// CLI-1, CLI-4, CLI-5: which command runs, and what is left to the program.
func TestCommands_CLI1_CLI4_CLI5(t *testing.T) {
	var note seen
	p := complete(&note)
	for line, want := range map[string]string{
		"": "run", "run": "run", "-v": "run", "-n a": "run", "-n a run": "run", "run -n a": "run", "handlers": "handlers",
		"manifests": "manifests", "freeze -P p -t 60": "freeze", "resume -P p": "resume", "why pod/x": "why",
		"--version": "", "version": "", "--help": "", "run --help": "", "freeze -h": "", "help run": "", "completion bash": "",
	} {
		note = seen{}
		code, out, stderr := call(t, p, line)
		if code != OK || note.Command != want || stderr != "" || want == "" && out == "" {
			t.Errorf("%q: %s, exit code %d, %s%s", line, note.Command, code, out, stderr)
		}
	}
	if i := invoked(t, p, &note, "run"); i.Everywhere || i.Namespaces != nil || i.NamespaceSelector != "" {
		t.Errorf("nothing is said of namespaces, so the program decides: %+v", i)
	}
	_, help, _ := call(t, p, "--help")
	for _, command := range []string{"run", "handlers", "manifests", "freeze", "resume", "why", "version", "completion", "help"} {
		if !strings.Contains(help, "\n  "+command+" ") {
			t.Errorf("%s is not among the commands of\n%s", command, help)
		}
	}
	if strings.Contains(help, "--queueing") || !strings.Contains(help, "op run --help") {
		t.Error("settings are not for the first page:", help)
	}
	if code, _, stderr := call(t, Program{Name: "op"}, "freeze"); code != Usage || !strings.Contains(stderr, `there is no command "freeze"`) {
		t.Error("a command without a function is offered:", stderr)
	}
}

// EXT-8, T172: how a command line ends.
func TestExitCodes_EXT8_T172(t *testing.T) {
	for _, c := range []struct {
		line string
		fail error
		code int
		says string
	}{
		{"run", nil, OK, ""},
		{"run", errors.New("lost"), Failed, "error: lost\n"},
		{"run", fmt.Errorf("all: %w", Mistakes{errors.New("main.go:1: no\nmain.go:2: no")}), Failed, "main.go:1: no\nmain.go:2: no\n"},
		{"run x.py", nil, Usage, "error: unexpected argument \"x.py\"\n\nUsage:\n  op run [flags]\n\nop run --help says more.\n"},
		{"stop", nil, Usage, "error: there is no command \"stop\"\n\nUsage:\n  op [flags]\n\nop --help says more.\n"},
		{"run --none", nil, Usage, "error: unknown flag: --none\n\nUsage:\n  op run [flags]\n\nop run --help says more.\n"},
		{"run -m mod", nil, Usage, "error: unknown shorthand flag: 'm' in -m\n\nUsage:\n  op run [flags]\n\nop run --help says more.\n"},
		{"run -n", nil, Usage, "error: flag needs an argument: 'n' in -n\n\nUsage:\n  op run [flags]\n\nop run --help says more.\n"},
		{"why", nil, Usage, "error: which object? Say KIND/NAME\n\nUsage:\n  op why KIND/NAME [flags]\n\nop why --help says more.\n"},
		{"why pod", nil, Usage, "error: \"pod\" is neither KIND/NAME nor KIND/NAMESPACE/NAME\n\nUsage:\n  op why KIND/NAME [flags]\n\nop why --help says more.\n"},
		{"freeze", nil, Usage, "error: --peering is required\nerror: --lifetime is required\n\nUsage:\n  op freeze [flags]\n\nop freeze --help says more.\n"},
		{"freeze -P p -t 1.5", nil, Usage, "error: --lifetime is \"1.5\": that is not a number of seconds above 0\n\nUsage:\n  op freeze [flags]\n\nop freeze --help says more.\n"},
		{"manifests --kind x", nil, Usage, "error: --kind is \"x\": that is not PLURAL.GROUP=KIND\n\nUsage:\n  op manifests [flags]\n\nop manifests --help says more.\n"},
		{"handlers -o xml", nil, Usage, "error: --output is \"xml\": use one of table, wide, json, yaml\n\nUsage:\n  op handlers [flags]\n\nop handlers --help says more.\n"},
	} {
		note := seen{fail: c.fail}
		p := complete(&note)
		if code, _, stderr := call(t, p, c.line); code != c.code || stderr != c.says {
			t.Errorf("%q: exit code %d, says\n%s", c.line, code, stderr)
		}
	}
}

// All that is wrong in flags, variables and settings is told at once.
func TestUsageErrorsAreToldTogether_CLI2(t *testing.T) {
	note := seen{}
	p := complete(&note)
	code, _, stderr := call(t, p, "run -A -n a[ --log-format xml --queueing-worker-limit many --queueing-loop-limit -1 --webhook-host :1:", "KOPF_RUN_QUEUEING_EXIT_TIMEOUT=soon",
		"KOPF_RUN_SCANNING_DISABLED=maybe", "KOPF_RUN_NETWORKING_REQUEST_TIMEOUT=-5")
	for _, want := range []string{
		`--namespace is "a[": no pattern`, `--log-format is "xml": log format "xml" is not known`, `--queueing-worker-limit is "many": that is no integer`,
		`Settings.Queueing: LoopLimit is -1`, `--webhook-host is ":1:": `, `$KOPF_RUN_QUEUEING_EXIT_TIMEOUT is "soon": that is no time`,
		`$KOPF_RUN_SCANNING_DISABLED is "maybe": say yes or no`, `Settings.Networking: RequestTimeout is -5s`,
	} {
		if !strings.Contains(stderr, "error: "+want) {
			t.Errorf("%s is not among\n%s", want, stderr)
		}
	}
	if code != Usage || note.Command != "" || strings.Count(stderr, "error: ") != 8 {
		t.Errorf("exit code %d, ran %q, says\n%s", code, note.Command, stderr)
	}
	// What the program itself has wrong is told by it, with its other mistakes.
	p.Settings.Queueing.LoopLimit = -1
	invoked(t, p, &note, "run --queueing-worker-limit -1")
}

// CLI-2, SET-1: flags prevail over variables, and those over the program.
func TestPrecedence_CLI2_SET1(t *testing.T) {
	var note seen
	p := complete(&note)
	p.Settings = settings.Settings{Queueing: settings.Queueing{WorkerLimit: 1, LoopLimit: 1, ExitTimeout: time.Second}}
	got := invoked(t, p, &note, "run --queueing-worker-limit 3", "KOPF_RUN_QUEUEING_WORKER_LIMIT=2", "KOPF_RUN_QUEUEING_LOOP_LIMIT=2").Settings.Queueing
	if want := (settings.Queueing{WorkerLimit: 3, LoopLimit: 2, ExitTimeout: time.Second}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	for _, c := range []struct {
		line      string
		variables []string
		want      Invocation
	}{
		{"run", []string{"KOPF_RUN_NAMESPACES=a b,!c"}, Invocation{Namespaces: []string{"a", "b,!c"}}},
		{"run -n x -n y", []string{"KOPF_RUN_NAMESPACES=a b"}, Invocation{Namespaces: []string{"x", "y"}}},
		{"run --namespace=x", []string{"KOPF_RUN_CLUSTERWIDE=yes"}, Invocation{Namespaces: []string{"x"}}},
		{"run -A", []string{"KOPF_RUN_NAMESPACES=a b", "KOPF_RUN_NAMESPACE=c"}, Invocation{Everywhere: true}},
		{"run", []string{"KOPF_RUN_NAMESPACES=a", "KOPF_RUN_NAMESPACE=c"}, Invocation{Namespaces: []string{"a", "c"}}},
		{"run -n x", []string{"KOPF_RUN_NAMESPACE=c"}, Invocation{Namespaces: []string{"x", "c"}}},
		{"run", []string{"KOPF_RUN_CLUSTERWIDE=on", "KOPF_RUN_NAMESPACES="}, Invocation{Everywhere: true}},
		{"run", []string{"KOPF_RUN_CLUSTERWIDE=off"}, Invocation{}},
		{"run --namespace-selector team=blue", []string{"KOPF_RUN_CLUSTERWIDE=on"}, Invocation{NamespaceSelector: "team=blue"}},
		{"run --kubeconfig f", []string{"KOPF_RUN_CONTEXT=c"}, Invocation{Kubeconfig: "f", Context: "c"}},
		{"manifests -n x", []string{"KOPF_RUN_KUBECONFIG=f"}, Invocation{Namespaces: []string{"x"}, Kubeconfig: "f"}},
	} {
		got := invoked(t, p, &note, c.line, c.variables...)
		got.Settings, got.Log = settings.Settings{}, logging.Options{}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %q: got %+v", c.line, c.variables, got)
		}
	}
	if code, _, stderr := call(t, p, "run", "KOPF_RUN_CLUSTERWIDE=1", "KOPF_RUN_NAMESPACES=a"); code != Usage || !strings.Contains(stderr, "exclude --all-namespaces") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// CLI-3, LOG-3: what the flags for logging mean.
func TestLoggingFlags_CLI3_LOG3(t *testing.T) {
	var note seen
	p := complete(&note)
	for _, c := range []struct {
		line      string
		variables []string
		want      logging.Options
	}{
		{"run", nil, logging.Options{}},
		{"run -v", nil, logging.Options{Level: slog.LevelDebug}},
		{"run -q", nil, logging.Options{Level: slog.LevelWarn}},
		{"run -vq", nil, logging.Options{Level: slog.LevelDebug}},
		{"run --verbose=no", nil, logging.Options{}},
		{"run -q", []string{"KOPF_RUN_VERBOSE=1"}, logging.Options{Level: slog.LevelWarn}},
		{"run", []string{"KOPF_RUN_QUIET=t"}, logging.Options{Level: slog.LevelWarn}},
		{"run --log-level error", []string{"KOPF_RUN_DEBUG=1"}, logging.Options{Level: slog.LevelError}},
		{"run --log-level DEBUG", nil, logging.Options{Level: slog.LevelDebug}},
		{"run --log-format JSON --log-refkey k8s", nil, logging.Options{Format: "json", RefKey: "k8s"}},
		{"run", []string{"KOPF_RUN_LOG_FORMAT=full", "KOPF_RUN_LOG_REFKEY=o", "KOPF_RUN_LOG_PREFIX=no"}, logging.Options{Format: "full", RefKey: "o", Prefix: logging.PrefixOff}},
		{"run --log-prefix", []string{"KOPF_RUN_LOG_PREFIX=no"}, logging.Options{Prefix: logging.PrefixOn}},
		{"run --log-prefix --no-log-prefix", nil, logging.Options{Prefix: logging.PrefixOff}},
		{"run --no-log-prefix --log-prefix", nil, logging.Options{Prefix: logging.PrefixOn}},
		{"freeze -P p -t 1 -v", []string{"KOPF_FREEZE_LOG_FORMAT=plain", "KOPF_RUN_LOG_FORMAT=json"}, logging.Options{Level: slog.LevelDebug, Format: "plain"}},
		{"resume -P p", []string{"KOPF_RESUME_QUIET=1"}, logging.Options{Level: slog.LevelWarn}},
	} {
		if got := invoked(t, p, &note, c.line, c.variables...).Log; got != c.want {
			t.Errorf("%s %q: got %+v, want %+v", c.line, c.variables, got, c.want)
		}
	}
	if i := invoked(t, p, &note, "-d"); i.Log.Level != slog.LevelDebug || !i.LogClients {
		t.Errorf("-d: %+v", i)
	}
	if i := invoked(t, p, &note, "-v"); i.LogClients {
		t.Errorf("-v: %+v", i)
	}
}

// CLI-6, CLI-7: what freeze and resume are told.
func TestFreezeAndResume_CLI6_CLI7(t *testing.T) {
	var note seen
	p := complete(&note)
	for _, c := range []struct {
		line      string
		variables []string
		want      FreezeOptions
	}{
		{"freeze -P p -t 60", nil, FreezeOptions{Peering: "p", Priority: 100, Lifetime: time.Minute}},
		{"freeze --peering p --lifetime 10m -p 5 -i me -m deploying", nil, FreezeOptions{Peering: "p", Priority: 5, Lifetime: 10 * time.Minute, ID: "me", Message: "deploying"}},
		{"freeze --dev -p 5", []string{"KOPF_FREEZE_PEERING=p", "KOPF_FREEZE_LIFETIME=30"}, FreezeOptions{Peering: "p", Priority: 666, Lifetime: 30 * time.Second}},
		{"freeze -p 5 -P p -t 1", []string{"KOPF_FREEZE_DEV=1", "KOPF_FREEZE_ID=x", "KOPF_FREEZE_MESSAGE=a b"}, FreezeOptions{Peering: "p", Priority: 5, Lifetime: time.Second, ID: "x", Message: "a b"}},
	} {
		if invoked(t, p, &note, c.line, c.variables...); note.Freeze != c.want {
			t.Errorf("%s: got %+v", c.line, note.Freeze)
		}
	}
	if i := invoked(t, p, &note, "uninstall --dry-run --abandon -n a", "KOPF_UNINSTALL_KEEP_STATE=yes"); note.Uninstall != (UninstallOptions{DryRun: true, Abandon: true, KeepState: true}) || !slices.Equal(i.Namespaces, []string{"a"}) {
		t.Errorf("%+v, %+v", note.Uninstall, i)
	}
	if i := invoked(t, p, &note, "resume -P p -n a -i me", "KOPF_RESUME_CLUSTERWIDE=1"); note.Resume != (ResumeOptions{Peering: "p", ID: "me"}) || !slices.Equal(i.Namespaces, []string{"a"}) {
		t.Errorf("%+v, %+v", note.Resume, i)
	}
	if i := invoked(t, p, &note, "resume -P p -A"); !i.Everywhere {
		t.Errorf("%+v", i)
	}
}

// What the others are told.
func TestManifestsAndWhy(t *testing.T) {
	var note seen
	p := complete(&note)
	i := invoked(t, p, &note, "manifests --name n --operator-namespace ns --image i:1 --replicas 2 --health-port 81 --arg -v --arg=-A --part crds --cluster "+
		"--cluster-scoped a.b --kind x.y=Z --certificate c/d -n team --queueing-worker-limit 7 --kubeconfig f", "KOPF_RUN_SCANNING_DISABLED=yes")
	want := ManifestsOptions{Name: "n", Namespace: "ns", Image: "i:1", Replicas: 2, HealthPort: 81, Args: []string{"--namespace=team", "--queueing-worker-limit=7", "--scanning-disabled=yes", "-v", "-A"}, Parts: []string{"crds"}, Cluster: true,
		ClusterScoped: []string{"a.b"}, Kinds: map[string]string{"x.y": "Z"}, Certificate: "c/d"}
	if !reflect.DeepEqual(note.Manifests, want) || i.Settings.Queueing.WorkerLimit != 7 || i.Namespaces[0] != "team" {
		t.Errorf("%+v, %+v", note.Manifests, i)
	}
	invoked(t, p, &note, "why databases.example.com/blue -n team -o json", "KOPF_WHY_ADDRESS=http://h:1")
	if note.Why != (WhyOptions{Kind: "databases.example.com", Name: "blue", Namespace: "team", Output: "json", Address: "http://h:1"}) {
		t.Errorf("%+v", note.Why)
	}
	if invoked(t, p, &note, "why pod/ns/x"); note.Why != (WhyOptions{Kind: "pod", Namespace: "ns", Name: "x", Output: "text", Address: defaultAddress}) {
		t.Errorf("%+v", note.Why)
	}
	invoked(t, p, &note, "why pod/x")
	if note.Why != (WhyOptions{Kind: "pod", Name: "x", Output: "text", Address: defaultAddress}) {
		t.Errorf("%+v", note.Why)
	}
}

func TestWebhookHost(t *testing.T) {
	for text, want := range map[string]webhook.URL{
		"host.k3d.internal":  {Host: "host.k3d.internal"},
		"192.0.2.1:8443":     {Host: "192.0.2.1", Port: 8443},
		"2001:db8::1":        {Host: "2001:db8::1"},
		"[2001:db8::1]:8443": {Host: "2001:db8::1", Port: 8443},
	} {
		var note seen
		if got := invoked(t, complete(&note), &note, "run --webhook-host "+text).Settings.Admission.Endpoint; got != any(want) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
	for _, text := range []string{"", "host:", "host:0", "host:https", "host:65536", "a:b:c"} {
		if got, err := webhookURL(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestVersion(t *testing.T) {
	got := describe(&debug.BuildInfo{
		GoVersion: "go1.26", Main: debug.Module{Path: "example.com/op", Version: "v1.2.3"},
		Deps:     []*debug.Module{{Path: "other", Version: "v9"}, {Path: libraryPath, Version: "v0.5.0"}},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	})
	if want := "example.com/op v1.2.3 at abc, changed\ngithub.com/kopf-go/kopf v0.5.0\ngo1.26"; got != want {
		t.Error(got)
	}
	if got := describe(&debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Path: "op"}}); got != "op (devel)\ngo1.26" {
		t.Error(got)
	}
}

func TestCompletion(t *testing.T) {
	p := complete(nil)
	if _, out, _ := call(t, p, "__complete run --log-format j"); !strings.Contains(out, "json") {
		t.Error(out)
	}
	if _, out, _ := call(t, p, "__complete ma"); !strings.HasPrefix(out, "manifests\t") {
		t.Error(out)
	}
}
