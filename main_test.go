package kopf

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kopf-go/kopf/internal/command"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/on"
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

// run is the program in this process.
func run(o Options, args []string, stderr io.Writer) int {
	return command.Main(program(o, stderr), args, stderr, stderr)
}

// EXT-8: what ends with a usage, or before there is anything to run.
func TestExitCodes_EXT8_T172(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"-h", command.OK, "Without a command, it runs."},
		{"run --help", command.OK, "--queueing-worker-limit int"},
		{"--unknown", command.Usage, "error: unknown flag: --unknown\n\nUsage:\n"},
		{"extra", command.Usage, `there is no command "extra"`},
		{"-A -n team", command.Usage, "exclude --all-namespaces"},
		{"-n team[", command.Usage, `--namespace is "team[": namespace pattern "team[" is not a name or a glob`},
		{"-n a --namespace=", command.Usage, "is not a name or a glob"},
		{"--queueing-worker-limit -1", command.Usage, "Settings.Queueing: WorkerLimit is -1"},
		{"--kubeconfig /none", command.Failed, "error: no cluster to connect to: "},
		{"--context none", command.Failed, "error: no cluster to connect to: "},
		{"", command.Failed, "no cluster to connect to: "},
		{"version", command.OK, "\ngo1."},
	} {
		var out console
		code := run(Options{Registry: NewRegistry(), Logger: quietly()}, strings.Fields(c.args), &out)
		if code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%q: exit code %d, says:\n%s", c.args, code, &out)
		}
	}
}

// Mistakes are told, each on a line of its own that begins with file and line, by run and by
// what needs no cluster.
func TestMistakesOnTheConsole(t *testing.T) {
	reg := filled(func(in on.AnyOption) {
		on.Create[*corev1.Pod](nil, in)
		on.Create(handled[*corev1.Pod], on.Field("spec.x"), in)
	})
	for _, command := range []string{"run", "handlers"} {
		var out console
		code := run(Options{Registry: reg, Config: nowhere(), Logger: quietly()}, []string{command}, &out)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if code != 1 || len(lines) != 2 {
			t.Fatalf("exit code %d:\n%s", code, &out)
		}
		for _, line := range lines {
			if place, _, _ := strings.Cut(line, ": "); !strings.Contains(place, "/main_test.go:") {
				t.Error(line)
			}
		}
	}
}

// A signal ends the program in an orderly way. What it logs begins with the flags.
func TestSignal_EXT3_EXT8(t *testing.T) {
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
		if got := <-code; got != command.OK {
			t.Errorf("%v: exit code %d:\n%s", sig, got, &out)
		}
		if !strings.Contains(out.String(), `msg="operator has stopped"`) {
			t.Errorf("%v: %s", sig, &out)
		}
	}
}

// What the program says itself stays, unless the command line says otherwise (CLI-2).
func TestInvocationPrevails_CLI2(t *testing.T) {
	file := kubeconfigFile(t)
	t.Setenv("KUBECONFIG", file)
	own := nowhere()
	for _, c := range []struct {
		name       string
		given      Options
		said       command.Invocation
		namespaces []string
		host       string
	}{
		{"nothing", Options{}, command.Invocation{}, nil, ""},
		{"options", Options{Namespaces: []string{"a"}, Config: own}, command.Invocation{}, []string{"a"}, own.Host},
		{"namespaces", Options{Namespaces: []string{"a"}}, command.Invocation{Namespaces: []string{"b"}}, []string{"b"}, ""},
		{"everywhere", Options{Namespaces: []string{"a"}}, command.Invocation{Everywhere: true}, nil, ""},
		{"kubeconfig", Options{Config: own}, command.Invocation{Kubeconfig: file}, nil, "http://one.example:1"},
		{"kubeconfig and context", Options{Config: own}, command.Invocation{Kubeconfig: file, Context: "two"}, nil, "http://two.example:2"},
		{"context", Options{Config: own}, command.Invocation{Context: "two"}, nil, "http://two.example:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.given.Logger = quietly()
			if err := applyInvocation(&c.given, c.said, io.Discard); err != nil {
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

// LOG-3, LOG-8: Main logs to stderr, and has the clients' libraries do so; a program that has
// a logger keeps it, and embedding changes none.
func TestLoggingOfMain_LOG3_LOG8(t *testing.T) {
	var o Options
	var out console
	if err := applyInvocation(&o, command.Invocation{Log: logging.Options{Format: "plain", Level: slog.LevelDebug}}, &out); err != nil {
		t.Fatal(err)
	}
	o.Logger.Debug("hello", "a", 1)
	klog.Background().WithName("client").Info("from klog")
	klog.V(4).Info("too much of klog")
	if want := "hello a=1\nfrom klog logger=client\n"; out.String() != want {
		t.Errorf("got\n%s", &out)
	}
	out.text.Reset()
	if err := applyInvocation(new(Options), command.Invocation{Log: logging.Options{Format: "plain", Level: slog.LevelDebug}, LogClients: true}, &out); err != nil {
		t.Fatal(err)
	}
	defer func() {
		var none klog.Level
		if err := none.Set("0"); err != nil {
			t.Error(err)
		}
	}()
	klog.V(4).Info("some of klog")
	klog.V(5).Info("too much of klog")
	if want := "some of klog\n"; out.String() != want {
		t.Errorf("got\n%s", &out)
	}
	own := quietly()
	o = Options{Logger: own}
	if err := applyInvocation(&o, command.Invocation{}, io.Discard); err != nil || o.Logger != own {
		t.Error("the program's own logger was replaced", err)
	}
	before := slog.Default()
	if _, err := New(Options{Registry: NewRegistry(), Config: nowhere()}); err != nil || slog.Default() != before {
		t.Error("New has changed the default logger", err)
	}
	if err := applyInvocation(&Options{}, command.Invocation{Log: logging.Options{Format: "xml"}}, io.Discard); err == nil {
		t.Error("an unknown format was taken")
	}
}

// What is registered is listed without a cluster.
func TestHandlersCommand(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	reg := filled(func(in on.AnyOption) {
		on.Create(handled[*corev1.Pod], in, on.ID("fn"), on.Label("tier", "gold"), on.Retries(3))
	})
	var out console
	if code := run(Options{Registry: reg}, []string{"handlers", "-o", "wide"}, &out); code != command.OK {
		t.Fatalf("exit code %d:\n%s", code, &out)
	}
	if got := regexp.MustCompile(` +`).ReplaceAllString(out.String(), " "); !strings.Contains(got, `create fn Pod.v1 label tier="gold" retries=3 `) {
		t.Error(got)
	}
}
