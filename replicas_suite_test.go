package kopf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/faulty"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

// Replicas are processes of this test program, started with these variables.
const (
	replicaVar = "KOPF_TEST_REPLICA" // its name
	hostVar    = "KOPF_TEST_HOST"    // where it reaches the API server
)

// visit is what a replica writes down when it is inside of a handler, and when it has left.
type visit struct {
	Time    time.Time
	Replica string // with its process
	Enters  bool
	UID     types.UID
	Value   int64
}

// runReplica is an operator that elects a leader.
func runReplica(journal io.Writer) {
	replica := fmt.Sprint(os.Getenv(replicaVar), "/", os.Getpid())
	note := func(enters bool, uid types.UID, value int64) error {
		line, err := json.Marshal(visit{time.Now(), replica, enters, uid, value})
		if err == nil {
			_, err = journal.Write(append(line, '\n'))
		}
		return err
	}
	work := func(ctx context.Context, c *kopf.Change[*Widget]) (err error) {
		uid, value := c.Object.UID, c.New.Spec.Value
		if err := note(true, uid, value); err != nil {
			return err
		}
		defer func() {
			if failed := note(false, uid, value); failed != nil {
				err = failed
			}
		}()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(60 * time.Millisecond)):
		}
		c.Patch.Apply(func(o *Widget) { o.Status.Observed = value })
		return ctx.Err()
	}
	widgets := on.Resource(os.Getenv(crashVar)+"/v1", "widgets")
	on.Create(work, widgets, on.ID("create"))
	on.Update(work, widgets, on.ID("update"))
	on.Delete(work, widgets, on.ID("delete"))
	kopf.Main(kopf.Options{
		Namespaces: []string{os.Getenv(namespaceVar)}, Config: &rest.Config{Host: os.Getenv(hostVar)},
		Settings: kopf.Settings{LeaderElection: settings.LeaderElection{
			Enabled: true, Namespace: os.Getenv(namespaceVar), Identity: os.Getenv(replicaVar),
			LeaseDuration: 2 * time.Second, RenewDeadline: 1300 * time.Millisecond, RetryPeriod: 300 * time.Millisecond,
		}},
	})
}

// replica is one of two operators, behind a proxy of its own.
type replica struct {
	name    string
	w       *world
	journal string
	proxy   *faulty.Proxy
	process *exec.Cmd
}

func (r *replica) start() {
	GinkgoHelper()
	r.process = startOperator(r.w, r.journal, replicaVar+"="+r.name, hostVar+"="+r.proxy.Config().Host)
}

// id is what it calls itself in the journal.
func (r *replica) id() string { return fmt.Sprint(r.name, "/", r.process.Process.Pid) }

func (r *replica) signal(s syscall.Signal) {
	GinkgoHelper()
	Expect(r.process.Process.Signal(s)).To(Succeed())
}

// stands tells whether the process is stopped, as Linux says.
func (r *replica) stands() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.process.Process.Pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "T")
}

// span is a time in which a process was inside of a handler, or could not go on.
type span struct {
	process  string
	from, to time.Time
	thawed   bool // it began when the process was thawed, or so soon after that the process was about to when it was frozen
}

func (s span) String() string {
	const precise = "15:04:05.000000"
	return fmt.Sprintf("%s from %s to %s, thawed: %t", s.process, s.from.Format(precise), s.to.Format(precise), s.thawed)
}

// bound is how long a process that is thawed may be in a handler until it has seen that its
// context has ended: as long as a loaded machine takes for that.
const bound = 500 * time.Millisecond

// inside makes of what replicas have written down when they were inside. frozen are the times
// when a process was, ended when it has died.
func inside(visits []visit, frozen []span, ended map[string]time.Time) (spans []span) {
	type key struct {
		process string
		uid     types.UID
	}
	open := map[key]time.Time{}
	add := func(k key, to time.Time) {
		s := span{process: k.process, from: open[k], to: to}
		delete(open, k)
		for _, f := range frozen {
			if f.process == s.process && s.from.Before(f.from) && s.to.After(f.to) {
				spans = append(spans, span{process: s.process, from: s.from, to: f.from})
				s.from, s.thawed = f.to, true
			}
			s.thawed = s.thawed || f.process == s.process && s.from.After(f.to) && s.from.Sub(f.to) < bound
		}
		spans = append(spans, s)
	}
	for _, v := range visits {
		k := key{v.Replica, v.UID}
		if v.Enters {
			open[k] = v.Time
		} else {
			add(k, v.Time)
		}
	}
	for k := range open {
		Expect(ended).To(HaveKey(k.process), "%s has not left a handler, though it lives", k.process)
		add(k, ended[k.process])
	}
	return spans
}

var _ = Describe("two replicas", func() {
	It("B43 handle each change, and are never inside of handlers at a time, when the leader is killed, frozen and cut off", func(ctx SpecContext) {
		const objects, disturbances = 300, 10
		w := newWorld(ctx, "replicas", true)
		journal := GinkgoT().TempDir() + "/journal"
		replicas := map[string]*replica{}
		for _, name := range []string{"a", "b"} {
			r := &replica{name: name, w: w, journal: journal, proxy: newProxy()}
			replicas[name] = r
			r.start()
			DeferCleanup(func() {
				_ = r.process.Process.Kill()
				_ = r.process.Wait()
			})
		}
		leader := func() string {
			var lease coordinationv1.Lease
			if err := k8s.Client.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "kopf"}, &lease); err != nil || lease.Spec.HolderIdentity == nil {
				return ""
			}
			name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
			return name
		}
		Eventually(leader).ShouldNot(BeEmpty())

		// Meanwhile somebody creates and edits.
		editing, stopEditing := context.WithCancel(ctx)
		var edits sync.WaitGroup
		last := make([]int64, objects)
		for worker := range 4 {
			edits.Go(func() {
				defer GinkgoRecover()
				for i := worker; i < objects; i += 4 {
					last[i] = 1
					w.create(ctx, fmt.Sprintf("o%d", i), 1)
				}
				for editing.Err() == nil {
					i := worker + 4*rand.IntN(objects/4)
					last[i]++
					w.edit(ctx, fmt.Sprintf("o%d", i), last[i])
					time.Sleep(rand.N(20 * time.Millisecond))
				}
			})
		}
		defer edits.Wait()
		defer stopEditing()

		var frozen []span
		ended := map[string]time.Time{}
		for n := range disturbances {
			name := leader()
			r, other := replicas[name], map[string]string{"a": "b", "b": "a"}[name]
			Expect(r).NotTo(BeNil(), "nobody leads")
			before := len(readVisits(journal))
			Eventually(func() int { return len(readVisits(journal)) }).Should(BeNumerically(">", before), "nothing is handled by %s", name)
			time.Sleep(rand.N(400 * time.Millisecond))
			switch n % 3 {
			case 0:
				r.signal(syscall.SIGKILL)
				_ = r.process.Wait()
				ended[r.id()] = time.Now()
				Eventually(leader, 15*time.Second).Should(Equal(other), "after %s was killed", name)
				r.start()
			case 1:
				r.signal(syscall.SIGSTOP)
				Eventually(r.stands, time.Second, time.Millisecond).Should(BeTrue())
				at := time.Now()
				Eventually(leader, 15*time.Second).Should(Equal(other), "after %s was frozen", name)
				frozen = append(frozen, span{process: r.id(), from: at, to: time.Now()})
				r.signal(syscall.SIGCONT)
			case 2:
				mend := r.proxy.Before(requests{}, func(request) *fault { return &fault{Drop: true} })
				r.proxy.Cut(requests{})
				Eventually(leader, 15*time.Second).Should(Equal(other), "after %s was cut off", name)
				mend()
			}
		}
		stopEditing()
		edits.Wait()
		for i, value := range last {
			Eventually(w.observed(ctx, fmt.Sprintf("o%d", i)), 30*time.Second).Should(Equal(value), "o%d", i)
		}
		w.quiet(ctx, time.Second)
		for _, r := range replicas {
			r.signal(syscall.SIGTERM)
			Expect(r.process.Wait()).To(Succeed(), "SIGTERM ends %s with exit code 0", r.name)
		}
		Expect(leader()).To(BeEmpty(), "the lease is given back")

		visits := readVisits(journal)
		spans := inside(visits, frozen, ended)
		slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
		together := map[bool]time.Duration{} // the longest, by whether it was of one that was thawed
		var met []string
		for i, s := range spans {
			for _, other := range spans[i+1:] {
				if other.from.After(s.to) {
					break
				}
				if other.process != s.process {
					overlap := min(s.to.Sub(other.from), other.to.Sub(other.from))
					thawed := s.thawed || other.thawed
					together[thawed] = max(together[thawed], overlap)
					met = append(met, fmt.Sprintf("%s and %s, for %s", s, other, overlap))
				}
			}
		}
		AddReportEntry("visits, and the longest time together after a thaw", fmt.Sprint(len(visits)/2, " ", together[true]))
		Expect(together[false]).To(BeZero(), "two replicas were inside of handlers at a time: %s\nfrozen: %s\ndied: %v",
			strings.Join(met, "\n"), frozen, ended)
		Expect(together[true]).To(BeNumerically("<", bound), "a replica that was thawed stayed inside of a handler")
		processes := map[string]bool{}
		for _, v := range visits {
			processes[v.Replica] = true
		}
		Expect(len(processes)).To(BeNumerically(">=", 4), "processes that have led: %v", processes)
	})
})

func readVisits(path string) (visits []visit) {
	GinkgoHelper()
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(raw)) {
		var v visit
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		Expect(json.Unmarshal([]byte(line), &v)).To(Succeed(), line)
		visits = append(visits, v)
	}
	return visits
}
