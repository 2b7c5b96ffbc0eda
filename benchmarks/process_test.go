package benchmarks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// An operator under test is a process of its own, this test program started again,
// so that its CPU time and memory are nobody else's. Its variables:
const (
	operatorVar = "KOPF_BENCH_OPERATOR" // which one: a key of operators
	groupVar    = "KOPF_BENCH_GROUP"    // of its resource
	objectsVar  = "KOPF_BENCH_OBJECTS"  // how many objects it has to know to be ready
	profileVar  = "KOPF_BENCH_PROFILE"  // folder for pprof files; set by who runs the benchmark
)

// operators run until the context ends. They call ready when they know all objects.
var operators = map[string]func(ctx context.Context, o operatorOptions) error{
	"kopf":         runKopf,
	"typed":        runTyped,
	"unstructured": runUnstructured,
	// These need no control plane.
	"idle":           runIdle,
	"timers":         runTimers,
	"daemons":        runDaemons,
	"daemons-object": runDaemonsWithObject,
	"ticks":          runTicks,
	"requeue":        runRequeue,
	"index":          runIndex,
	"field":          runField,
	"kopf-webhook":   runKopfWebhook,
	"webhook":        runWebhook,
}

type operatorOptions struct {
	config  *rest.Config // nil without a control plane
	group   string
	objects int
	ready   func()
	// lookUp is set by operators with an index, before they are ready: it returns how
	// many values there are for a key.
	lookUp *func(key string) int
}

// usage is what a process has used so far. It answers each line on its standard
// input with one on its standard output: "usage", "heap" after a garbage collection, or
// "look" after many look-ups. The first one comes unasked, when it is ready, the last one
// when its operator has ended.
type usage struct {
	CPU     time.Duration // user and system
	Peak    int64         // bytes resident at most
	Heap    int64         // bytes of live objects; only if asked for
	Stacks  int64         // bytes of goroutines' stacks; only if asked for
	Handled int64         // calls of handlers
	Allocs  uint64        // allocations
	Look    lookUps       // only if asked for
	Ending  time.Duration // from the request to stop until the operator had ended
	Left    int           // goroutines that there were not before, after its end
}

func runOperator(kind string) {
	if err := operate(kind); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, kind+":", err)
		os.Exit(1)
	}
}

func operate(kind string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var config *rest.Config
	if path := os.Getenv("KUBECONFIG"); path != "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
			return err
		}
		config.QPS = -1
	}
	objects, err := strconv.Atoi(os.Getenv(objectsVar))
	if err != nil {
		return err
	}
	resource, _, _ := strings.Cut(os.Getenv(groupVar), "-")
	finish, err := profile(kind + "-" + resource)
	if err != nil {
		return err
	}
	if objects == 0 { // of interest is what comes
		defer finish()
	}
	answers := json.NewEncoder(os.Stdout)
	var lookUp func(string) int
	var stopped time.Time
	goroutines := runtime.NumGoroutine()
	ready := func() {
		answer := used()
		if objects > 0 {
			finish()
		}
		_ = answers.Encode(answer)
		go func() {
			defer func() { // when the benchmark is over, or dead
				stopped = time.Now()
				stop()
			}()
			for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
				answer := used()
				switch lines.Text() {
				case "heap":
					answer.Heap, answer.Stacks = heap()
					keepHeap(kind)
				case "look":
					answer.Look = measureLookUps(lookUp)
				}
				_ = answers.Encode(answer)
			}
		}()
	}
	err = operators[kind](ctx, operatorOptions{config, os.Getenv(groupVar), objects, ready, &lookUp})
	last := used()
	last.Ending = time.Since(stopped)
	for wait := time.Duration(0); wait < time.Second; wait += 10 * time.Millisecond { // the scanner's may take a moment
		if last.Left = max(0, runtime.NumGoroutine()-goroutines); last.Left == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = answers.Encode(last)
	return err
}

func used() usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	cpu := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	allocs := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(allocs)
	return usage{CPU: cpu, Peak: peak(), Handled: handled.Load(), Allocs: allocs[0].Value.Uint64()}
}

// peak reads what getrusage does not tell: its peak includes that of the process
// which started this one. It is zero where there is no /proc.
func peak() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "kB")
	kilobytes, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return kilobytes << 10
}

func heap() (live, stacks int64) {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	// What was allocated since is left out, for operators at work do not stop for this.
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()), int64(m.StackInuse)
}

// keepHeap writes down what is live, if somebody wants to know.
func keepHeap(kind string) {
	folder := os.Getenv(profileVar)
	if folder == "" {
		return
	}
	if f, err := os.Create(filepath.Join(folder, kind+".heap.pprof")); err == nil {
		_ = pprof.Lookup("heap").WriteTo(f, 0)
		_ = f.Close()
	}
}

// profile records what the operator does, if somebody wants to know: until it knows
// all objects, or if there are none, until it ends.
func profile(name string) (finish func(), err error) {
	folder := os.Getenv(profileVar)
	if folder == "" {
		return func() {}, nil
	}
	create := func(kind string) *os.File {
		f, createErr := os.Create(filepath.Join(folder, name+"."+kind+".pprof"))
		err = errors.Join(err, createErr)
		return f
	}
	cpu, allocs := create("cpu"), create("allocs")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = pprof.Lookup("allocs").WriteTo(allocs, 0)
		_, _ = cpu.Close(), allocs.Close()
	}, nil
}

// process is a running operator, as the benchmark sees it.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *json.Decoder
	ready   usage
	wall    time.Duration // from its start until it was ready
}

// start runs an operator until it is ready.
func start(b *testing.B, kind, group string, objects int) *process {
	b.Helper()
	p := &process{command: exec.CommandContext(b.Context(), os.Args[0])}
	p.command.Env = append(os.Environ(), operatorVar+"="+kind, groupVar+"="+group, objectsVar+"="+strconv.Itoa(objects))
	p.command.Stderr = os.Stderr
	var err error
	if p.input, err = p.command.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.output = json.NewDecoder(output)
	begin := time.Now()
	if err := p.command.Start(); err != nil {
		b.Fatal(err)
	}
	p.ready = p.answer(b)
	p.wall = time.Since(begin)
	return p
}

func (p *process) answer(b *testing.B) (u usage) {
	b.Helper()
	if err := p.output.Decode(&u); err != nil {
		b.Fatalf("operator does not answer: %v", err)
	}
	return u
}

func (p *process) ask(b *testing.B, what string) usage {
	b.Helper()
	if _, err := fmt.Fprintln(p.input, what); err != nil {
		b.Fatal(err)
	}
	return p.answer(b)
}

// stop returns what the operator has used in all.
func (p *process) stop(b *testing.B) usage {
	b.Helper()
	_ = p.input.Close()
	last := p.answer(b)
	if err := p.command.Wait(); err != nil {
		b.Error(err)
	}
	return last
}
