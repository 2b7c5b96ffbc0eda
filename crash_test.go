package kopf_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// The crash test kills an operator process at random moments. The process is this
// test program itself, started with these variables.
const (
	crashVar     = "KOPF_TEST_CRASHING_OPERATOR" // the group of its resource
	namespaceVar = "KOPF_TEST_NAMESPACE"
	journalVar   = "KOPF_TEST_JOURNAL" // where it writes down each call
	holdingVar   = "KOPF_TEST_HOLDING" // set: it has a daemon that holds objects, and nothing else
)

// entry is what the operator writes down when a handler begins.
type entry struct {
	Time    time.Time
	Handler string
	UID     types.UID
	Name    string
	Value   int64
}

// runCrashingOperator is the operator of the crash test.
func runCrashingOperator() {
	journal, err := os.OpenFile(os.Getenv(journalVar), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	if os.Getenv(replicaVar) != "" {
		runReplica(journal)
		return
	}
	widgets := on.Resource(os.Getenv(crashVar)+"/v1", "widgets")
	options := kopf.Options{Namespaces: []string{os.Getenv(namespaceVar)}}
	if os.Getenv(holdingVar) != "" {
		on.Daemon(holdingDaemon(journal), widgets, on.ID("daemon"), on.Finalize())
		kopf.Main(options)
		return
	}
	show := func(ctx context.Context, c *kopf.Change[*Widget]) error {
		line, err := json.Marshal(entry{time.Now(), string(c.Reason), c.Object.UID, c.Object.Name, c.New.Spec.Value})
		if err != nil {
			return err
		}
		if _, err := journal.Write(append(line, '\n')); err != nil {
			return err
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // work, to be killed in
		c.Patch.Apply(func(o *Widget) { o.Status.Observed = c.New.Spec.Value })
		return nil
	}
	on.Create(show, widgets, on.ID("create"))
	on.Update(show, widgets, on.ID("update"))
	on.Delete(show, widgets, on.ID("delete"))
	kopf.Main(options)
}

var _ = Describe("an operator that is killed", func() {
	It("finishes everything in the end, and repeats nothing that was recorded as done (ORD-3)", func(ctx SpecContext) {
		const objects, kills = 300, 20
		seed := uint64(time.Now().UnixNano())
		AddReportEntry("seed", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(ctx, "crash", true)
		journal := GinkgoT().TempDir() + "/journal"

		records := newRecords()
		watching, stopWatching := context.WithCancel(ctx)
		var background sync.WaitGroup
		background.Go(func() { records.watch(watching, w) })
		defer background.Wait()
		defer stopWatching()

		// Meanwhile somebody creates, edits and deletes.
		var edits sync.WaitGroup
		last := make([]int64, objects) // of each object; 0: deleted
		for worker := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(worker)+1))
			edits.Go(func() {
				defer GinkgoRecover()
				for i := worker; i < objects; i += 4 {
					name, value := fmt.Sprintf("o%d", i), int64(1)
					w.create(ctx, name, value)
					last[i] = value
					for range random.IntN(4) {
						time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond)))) // people are not fast
						value++
						w.edit(ctx, name, value)
						last[i] = value
					}
					if random.IntN(4) == 0 {
						w.remove(ctx, name)
						last[i] = 0
					}
				}
			})
		}
		for kill := range kills {
			process := startOperator(w, journal)
			time.Sleep(300*time.Millisecond + time.Duration(random.Int64N(int64(900*time.Millisecond)))) // the random moment
			Expect(process.Process.Signal(syscall.SIGKILL)).To(Succeed(), "kill %d", kill)
			Expect(process.Wait()).NotTo(Succeed())
		}
		edits.Wait()
		process := startOperator(w, journal)
		for i, value := range last {
			name := fmt.Sprintf("o%d", i)
			if value == 0 {
				Eventually(w.isGone(ctx, name), 2*time.Minute).Should(BeTrue(), "%s is not gone", name)
			} else {
				Eventually(w.observed(ctx, name), 2*time.Minute).Should(Equal(value), name)
			}
		}
		w.quiet(ctx, 2*time.Second)
		Expect(process.Process.Signal(syscall.SIGTERM)).To(Succeed())
		Expect(process.Wait()).To(Succeed(), "SIGTERM ends it with exit code 0")

		calls := readJournal(journal)
		AddReportEntry("calls", len(calls))
		records.mu.Lock()
		defer records.mu.Unlock()
		seen := map[types.UID]map[string]bool{}
		for _, call := range calls {
			if seen[call.UID] == nil {
				seen[call.UID] = map[string]bool{}
			}
			seen[call.UID][call.Handler] = true
			key := recordKey{call.UID, call.Value}
			if at, done := records.done[key]; done && call.Handler != "delete" {
				Expect(call.Time).To(BeTemporally("<", at), "%s of %s for value %d ran again after it was recorded", call.Handler, call.Name, call.Value)
			}
			if at, done := records.created[call.UID]; done && call.Handler == "create" {
				Expect(call.Time).To(BeTemporally("<", at), "creation of %s ran again after it was recorded", call.Name)
			}
		}
		for uid, held := range records.held {
			Expect(seen[uid]["create"] || records.deletedEarly[uid] || records.gone[uid] && !records.deleting[uid]).To(BeTrue(), "no creation of %s: %s", held, strings.Join(records.history[uid], "\n"))
			if records.gone[uid] && records.deleting[uid] {
				Expect(seen[uid]["delete"]).To(BeTrue(), "no deletion of %s: %s", held, strings.Join(records.history[uid], "\n"))
			}
		}
	})
})

func startOperator(w *world, journal string, variables ...string) *exec.Cmd {
	GinkgoHelper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), crashVar+"="+w.group, namespaceVar+"="+w.namespace, journalVar+"="+journal)
	process.Env = append(process.Env, variables...)
	process.Stderr = GinkgoWriter
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(process.Start()).To(Succeed())
	return process
}

func readJournal(path string) (calls []entry) {
	GinkgoHelper()
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var call entry
		Expect(json.Unmarshal(lines.Bytes(), &call)).To(Succeed(), lines.Text())
		calls = append(calls, call)
	}
	return calls
}

type recordKey struct {
	uid   types.UID
	value int64
}

// records is when the test has seen what on the objects. A handler that began after
// that did not know of it.
type records struct {
	mu           sync.Mutex
	done         map[recordKey]time.Time // last-handled has this value
	created      map[types.UID]time.Time // last-handled is there
	held         map[types.UID]string    // our finalizer was on it
	deletedEarly map[types.UID]bool      // its deletion was requested before it was handled
	gone         map[types.UID]bool
	// deleting: its deletion was requested while our finalizer was on it. The API server
	// itself has a race here: it may delete an object that got its finalizer just now.
	deleting map[types.UID]bool
	history  map[types.UID][]string // for people who look for the reason of a failure
}

func newRecords() *records {
	return &records{
		done: map[recordKey]time.Time{}, created: map[types.UID]time.Time{}, held: map[types.UID]string{},
		deletedEarly: map[types.UID]bool{}, gone: map[types.UID]bool{}, deleting: map[types.UID]bool{}, history: map[types.UID][]string{},
	}
}

// watch follows the objects until the context ends. Polling would miss versions.
func (r *records) watch(ctx context.Context, w *world) {
	defer GinkgoRecover()
	watcher, err := client.NewWithWatch(k8s.Config, client.Options{Scheme: w.client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	version := ""
	for ctx.Err() == nil {
		stream, err := watcher.Watch(ctx, &WidgetList{}, client.InNamespace(w.namespace), &client.ListOptions{
			Raw: listOptions(version),
		})
		if apierrors.IsTooManyRequests(err) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			Expect(ctx.Err()).To(HaveOccurred(), "%v", err)
			return
		}
		for event := range stream.ResultChan() {
			widget, ok := event.Object.(*Widget)
			if !ok {
				continue
			}
			version = widget.ResourceVersion
			r.note(widget, event.Type == "DELETED")
		}
	}
}

func (r *records) note(widget *Widget, deleted bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history[widget.UID] = append(r.history[widget.UID], fmt.Sprintf("%s version %s deleted=%t finalizers=%v deleting=%t value=%d observed=%d annotations=%v",
		now.Format("05.000"), widget.ResourceVersion, deleted, widget.Finalizers, widget.DeletionTimestamp != nil,
		widget.Spec.Value, widget.Status.Observed, widget.Annotations))
	if len(widget.Finalizers) > 0 {
		r.held[widget.UID] = widget.Name
		r.deleting[widget.UID] = r.deleting[widget.UID] || widget.DeletionTimestamp != nil
	}
	text := widget.Annotations["kopf.zalando.org/last-handled-configuration"]
	if text == "" && widget.DeletionTimestamp != nil {
		r.deletedEarly[widget.UID] = true
	}
	if deleted {
		r.gone[widget.UID] = true
		return
	}
	if text == "" {
		return
	}
	var essence struct{ Spec WidgetSpec }
	if json.Unmarshal([]byte(text), &essence) != nil {
		return
	}
	if _, known := r.created[widget.UID]; !known {
		r.created[widget.UID] = now
	}
	key := recordKey{widget.UID, essence.Spec.Value}
	if _, known := r.done[key]; !known {
		r.done[key] = now
	}
}
