package kopf_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// programVar has this test program be an operator with kopf.Main, of the kind that it says.
const programVar = "KOPF_TEST_PROGRAM"

// runProgram is a program whose API server does not answer.
func runProgram(kind string) {
	options := kopf.Options{Name: "tested", Registry: kopf.NewRegistry(), Config: &rest.Config{Host: "http://127.0.0.1:1"}}
	switch kind {
	case "plain":
	case "connected":
		options.Config = nil
	case "stuck":
		on.Startup(func(context.Context, *kopf.Activity) error {
			fmt.Fprintln(os.Stderr, "handler is stuck")
			select {}
		}, on.In(options.Registry))
	case "deaf":
		options.Logger = slog.New(deafHandler{slog.NewTextHandler(os.Stderr, nil)})
	case "mistaken":
		on.Create[*Widget](nil, on.In(options.Registry))
	case "talking":
		on.Event(func(context.Context, *kopf.Event[*Widget]) error { return nil }, on.Resource("tested.example.com/v1", "widgets"), on.In(options.Registry))
		options.Config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				ctrllog.Log.Info("from controller-runtime")
				return next.RoundTrip(r)
			})
		}
	default:
		panic("what is " + kind)
	}
	kopf.Main(options)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// deafHandler never returns from what is said last, so that the program does not end.
type deafHandler struct{ slog.Handler }

func (h deafHandler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Message == "operator has stopped" {
		select {}
	}
	return err
}

// process is a program while it runs.
type process struct {
	*testing.T
	command *exec.Cmd
	lines   *bufio.Scanner // of stderr
	said    []string
	out     bytes.Buffer
}

func startProgram(t *testing.T, kind string, args ...string) *process {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel) // it kills the process, if it has not ended
	p := &process{T: t, command: exec.CommandContext(limit, os.Args[0], args...)}
	p.command.Env = append(os.Environ(), programVar+"="+kind)
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.command.Stdout = &p.out
	p.lines = bufio.NewScanner(out)
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// says waits for a line.
func (p *process) says(text string) {
	p.Helper()
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return
		}
	}
	p.Fatalf("does not say %q, but:\n%s", text, strings.Join(p.said, "\n"))
}

func (p *process) signal(s os.Signal) {
	p.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// ends waits for the end, and returns what was said, on stderr, and then on stdout.
func (p *process) ends(code int) string {
	p.Helper()
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
	}
	err := p.command.Wait()
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode() // -1 if a signal has killed it
	} else if err != nil {
		p.Fatal(err)
	}
	said := strings.Join(p.said, "\n") + "\n" + p.out.String()
	if got != code {
		p.Errorf("exit code %d, want %d:\n%s", got, code, said)
	}
	return said
}

// EXT-8, T172: the exit codes of a program.
func TestExitCodesOfAProcess_EXT8_T172(t *testing.T) {
	for _, c := range []struct {
		kind, args string
		code       int
		says       string
	}{
		{"plain", "version", 0, "github.com/kopf-go/kopf"},
		{"plain", "--help", 0, "Without a command, it runs."},
		{"plain", "manifests --part deployment -n team", 0, "- --namespace=team\n"},
		{"plain", "handlers", 0, "KIND "},
		{"plain", "run main.py", 2, `error: unexpected argument "main.py"`},
		{"plain", "--log-format xml -A -n a", 2, "error: --namespace and --namespace-selector exclude --all-namespaces"},
		{"mistaken", "", 1, "program_test.go:"},
		{"mistaken", "handlers", 1, "program_test.go:"},
		{"plain", "--kubeconfig /none", 1, "error: no cluster to connect to: "},
	} {
		if said := startProgram(t, c.kind, strings.Fields(c.args)...).ends(c.code); !strings.Contains(said, c.says) {
			t.Errorf("%s %s says\n%s", c.kind, c.args, said)
		}
	}
}

// EXT-3, EXT-8: the first signal stops a program in an orderly way, the second one ends it.
func TestSignalsToAProcess_EXT3_EXT8(t *testing.T) {
	for _, s := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		t.Run(fmt.Sprint(s.signal), func(t *testing.T) {
			p := startProgram(t, "plain")
			p.says("operator starts")
			p.signal(s.signal)
			if said := p.ends(0); !strings.Contains(said, "operator has stopped") {
				t.Error(said)
			}
			p = startProgram(t, "deaf")
			p.says("operator starts")
			p.signal(syscall.SIGTERM)
			p.says("operator has stopped")
			p.signal(s.signal)
			if said := p.ends(s.code); !strings.Contains(said, "error: "+s.signal.String()+", once more") {
				t.Error(said)
			}
		})
	}
}

// EXT-7: a program that does not stop ends after a time.
func TestAProcessThatDoesNotStop_EXT7_EXT8(t *testing.T) {
	p := startProgram(t, "stuck", "--process-exit-timeout", "0.1", "--queueing-exit-timeout", "1h")
	p.says("handler is stuck")
	p.signal(syscall.SIGTERM)
	if said := p.ends(137); !strings.Contains(said, "has not stopped within 100ms") {
		t.Error(said)
	}
}

// LOG-3: what the libraries say is logged as the rest is, on stderr.
func TestLogsOfAProcess_LOG3(t *testing.T) {
	p := startProgram(t, "talking", "--log-format", "json", "-v")
	p.says(`"message":"from controller-runtime"`)
	p.signal(syscall.SIGTERM)
	for line := range strings.Lines(p.ends(0)) {
		if !strings.HasPrefix(line, `{"timestamp":"`) {
			t.Error("not as JSON:", line)
		}
	}
}
