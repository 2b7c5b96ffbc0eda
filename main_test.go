package kopf

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/webhook"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "http://one.example:1"}}
- {name: two, cluster: {server: "http://two.example:2"}}
contexts:
- {name: one, context: {cluster: one, user: me}}
- {name: two, context: {cluster: two, user: me}}
users:
- {name: me, user: {token: secret}}
`

func kubeconfigFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// console is standard error, which other goroutines may write to as well.
type console struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func quietly() *slog.Logger { return slog.New(slog.DiscardHandler) }

// What ends with a usage, or before there is anything to run.
func TestExitCodes(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-h", exitOK, "-log-level level"},
		{"-help", exitOK, "Usage of operator:"},
		{"--help", exitOK, "handle objects in namespaces of this pattern; repeatable"},
		{"--unknown", exitUsage, "flag provided but not defined: -unknown"},
		{"extra", exitUsage, "unexpected argument extra\nUsage of operator:"},
		{"-A -n team", exitUsage, "--namespace and --all-namespaces exclude each other"},
		{"--namespace=team --all-namespaces", exitUsage, "exclude each other"},
		{"-n", exitUsage, "flag needs an argument: -n"},
		{"-n team[", exitUsage, `invalid value "team[" for flag -n: namespace pattern "team[" is not a name or a glob`},
		{"-n a -n=", exitUsage, "is not a name or a glob"},
		{"--log-level loud", exitUsage, `invalid value "loud" for flag -log-level`},
		{"--log-format xml", exitUsage, `log format "xml" is not known: use one of text, plain, full, logfmt, json`},
		{"--kubeconfig /none", exitError, "error: no cluster to connect to: "},
		{"--context none", exitError, "error: no cluster to connect to: "},
		{"", exitError, "no cluster to connect to: "},
	} {
		var out console
		code := run(Options{Registry: NewRegistry(), Logger: quietly()}, strings.Fields(c.args), &out)
		if code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%q: exit code %d, says:\n%s", c.args, code, &out)
		}
	}
}

// Mistakes are told, each on a line of its own that begins with file and line.
func TestMistakesOnTheConsole(t *testing.T) {
	reg := filled(func(in on.AnyOption) {
		on.Create[*corev1.Pod](nil, in)
		on.Create(handled[*corev1.Pod], on.Field("spec.x"), in)
	})
	var out console
	code := run(Options{Registry: reg, Config: nowhere(), Logger: quietly()}, nil, &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if code != exitError || len(lines) != 2 {
		t.Fatalf("exit code %d:\n%s", code, &out)
	}
	for _, line := range lines {
		if place, _, _ := strings.Cut(line, ": "); !strings.Contains(place, "/main_test.go:") {
			t.Error(line)
		}
	}
}

// A signal ends the program in an orderly way. What it logs begins with the flags.
func TestSignal(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		var out console
		code := make(chan int)
		go func() {
			code <- run(Options{Registry: NewRegistry(), Config: nowhere()}, []string{"--log-format", "logfmt"}, &out)
		}()
		for !strings.Contains(out.String(), `msg="operator starts"`) { // then signals are taken
			time.Sleep(time.Millisecond)
		}
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if err := self.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := <-code; got != exitOK {
			t.Errorf("%v: exit code %d:\n%s", sig, got, &out)
		}
		if !strings.Contains(out.String(), `msg="operator has stopped"`) {
			t.Errorf("%v: %s", sig, &out)
		}
	}
}

func TestParseFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want flags
	}{
		{"", flags{format: "text"}},
		{"-n a --namespace b,!c -namespace=d-*", flags{namespaces: []string{"a", "b,!c", "d-*"}, format: "text"}},
		{"-A", flags{everywhere: true, format: "text"}},
		{"--all-namespaces", flags{everywhere: true, format: "text"}},
		{"--kubeconfig f --context c", flags{kubeconfig: "f", context: "c", format: "text"}},
		{"--log-level debug --log-format json", flags{level: slog.LevelDebug, format: "json"}},
		{"--log-level WARN", flags{level: slog.LevelWarn, format: "text"}},
		{"--log-level error --log-format=logfmt", flags{level: slog.LevelError, format: "logfmt"}},
	} {
		got, err := parseFlags(strings.Fields(c.args), io.Discard)
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%q: %+v, %v", c.args, got, err)
		}
	}
	if _, err := parseFlags([]string{"-h"}, io.Discard); err != flag.ErrHelp {
		t.Error(err)
	}
}

// What the program says itself stays, unless a flag says otherwise.
func TestApplyFlags(t *testing.T) {
	file := kubeconfigFile(t)
	t.Setenv("KUBECONFIG", file)
	own := nowhere()
	for _, c := range []struct {
		name       string
		given      Options
		flags      flags
		namespaces []string
		host       string
	}{
		{"nothing", Options{}, flags{}, nil, ""},
		{"options", Options{Namespaces: []string{"a"}, Config: own}, flags{}, []string{"a"}, own.Host},
		{"namespaces", Options{Namespaces: []string{"a"}}, flags{namespaces: []string{"b"}}, []string{"b"}, ""},
		{"everywhere", Options{Namespaces: []string{"a"}}, flags{everywhere: true}, nil, ""},
		{"kubeconfig", Options{Config: own}, flags{kubeconfig: file}, nil, "http://one.example:1"},
		{"kubeconfig and context", Options{Config: own}, flags{kubeconfig: file, context: "two"}, nil, "http://two.example:2"},
		{"context", Options{Config: own}, flags{context: "two"}, nil, "http://two.example:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.flags.format, c.given.Logger = "text", quietly()
			if err := c.flags.apply(&c.given, io.Discard); err != nil {
				t.Fatal(err)
			}
			host := ""
			if c.given.Config != nil {
				host = c.given.Config.Host
			}
			if !reflect.DeepEqual(c.given.Namespaces, c.namespaces) || host != c.host {
				t.Errorf("namespaces %q, host %s", c.given.Namespaces, host)
			}
		})
	}
}

func TestLogFlags(t *testing.T) {
	for _, c := range []struct {
		flags flags
		want  string // of a line, after its time
		debug bool
	}{
		{flags{format: "text"}, "INFO  [ns/x] hello a=1\n", false},
		{flags{format: "text", level: slog.LevelDebug}, "INFO  [ns/x] hello a=1\n", true},
		{flags{format: "logfmt"}, "level=INFO msg=hello object=ns/x a=1\n", false},
		{flags{format: "json"}, `"severity":"info","message":"hello","object":"ns/x","a":1}` + "\n", false},
	} {
		var o Options
		var out console
		if err := c.flags.apply(&o, &out); err != nil {
			t.Fatal(err)
		}
		o.Logger.Info("hello", "object", "ns/x", "a", 1)
		if !strings.HasSuffix(out.String(), c.want) || o.Logger.Enabled(context.Background(), slog.LevelDebug) != c.debug {
			t.Errorf("%+v: %s", c.flags, &out)
		}
	}
	own := quietly()
	o := Options{Logger: own}
	if err := (&flags{format: "text"}).apply(&o, io.Discard); err != nil || o.Logger != own {
		t.Error("the program's own logger was replaced", err)
	}
	if err := (&flags{format: "xml"}).apply(&Options{}, io.Discard); err == nil {
		t.Error("an unknown format was taken")
	}
}

func TestWebhookHost(t *testing.T) {
	for text, want := range map[string]webhook.URL{
		"host.k3d.internal":  {Host: "host.k3d.internal"},
		"192.0.2.1:8443":     {Host: "192.0.2.1", Port: 8443},
		"2001:db8::1":        {Host: "2001:db8::1"},
		"[2001:db8::1]:8443": {Host: "2001:db8::1", Port: 8443},
	} {
		if got, err := webhookURL(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "host:", "host:0", "host:https", "host:65536", "a:b:c"} {
		if got, err := webhookURL(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}
