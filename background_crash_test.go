package kopf_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
)

// holdingDaemon is that of an operator that is killed: it writes down when it begins, and
// why it has to leave, and takes some time for that.
func holdingDaemon(journal io.Writer) func(context.Context, *kopf.Daemon[*Widget]) error {
	note := func(what string, o *Widget) error {
		line, err := json.Marshal(entry{time.Now(), what, o.UID, o.Name, o.Spec.Value})
		if err == nil {
			_, err = journal.Write(append(line, '\n'))
		}
		return err
	}
	return func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
		if err := note("begins", d.Object()); err != nil {
			return err
		}
		<-ctx.Done()
		time.Sleep(rand.N(100 * time.Millisecond)) // to be killed in
		return note(context.Cause(ctx).Error(), d.Object())
	}
}

var _ = Describe("an operator that is killed while daemons hold objects", func() {
	It("DMN-3 lets those go after its next start whose deletion was requested, and holds the others", func(ctx SpecContext) {
		const objects, kills = 60, 8
		seed := uint64(time.Now().UnixNano())
		AddReportEntry("seed", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		w := reported(ctx, "held")
		journal := GinkgoT().TempDir() + "/journal"
		name := func(i int) string { return fmt.Sprintf("o%d", i) }
		stays := func(i int) bool { return i%5 == 0 }

		var created, removed int
		for range kills {
			process := startOperator(w, journal, holdingVar+"=yes")
			for range objects / kills {
				w.create(ctx, name(created), 1)
				created++
			}
			time.Sleep(300*time.Millisecond + time.Duration(random.Int64N(int64(700*time.Millisecond)))) // the random moment
			for removed < created-random.IntN(4) {
				if !stays(removed) {
					w.remove(ctx, name(removed))
				}
				removed++
			}
			time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			Expect(process.Process.Signal(syscall.SIGKILL)).To(Succeed())
			Expect(process.Wait()).NotTo(Succeed())
		}
		for ; removed < created; removed++ {
			if !stays(removed) {
				w.remove(ctx, name(removed))
			}
		}
		process := startOperator(w, journal, holdingVar+"=yes")
		staying := map[types.UID]bool{}
		for i := range created {
			if !stays(i) {
				Eventually(w.isGone(ctx, name(i))).Should(BeTrue(), name(i))
				continue
			}
			Eventually(w.finalizers(ctx, name(i))).Should(ConsistOf(ourFinalizer), name(i))
			object, err := w.get(ctx, name(i))
			Expect(err).NotTo(HaveOccurred())
			staying[object.UID] = true
		}
		w.quiet(ctx, time.Second)
		beforeEnd := readJournal(journal)
		Expect(process.Process.Signal(syscall.SIGTERM)).To(Succeed())
		Expect(process.Wait()).To(Succeed(), "SIGTERM ends it with exit code 0")

		begun := map[types.UID]int{}
		deleted := map[types.UID]bool{}
		for _, line := range beforeEnd {
			switch line.Handler {
			case "begins":
				Expect(deleted[line.UID]).To(BeFalse(), "%s begins again although it is being deleted", line.Name)
				begun[line.UID]++
			case kopf.ErrDeleted.Error():
				deleted[line.UID] = true
			default:
				Fail(fmt.Sprintf("%s leaves because %s", line.Name, line.Handler))
			}
		}
		for uid := range staying {
			Expect(begun).To(HaveKey(uid))
			Expect(deleted).NotTo(HaveKey(uid))
		}
		AddReportEntry("daemons that began, and that were told of a deletion", fmt.Sprint(len(beforeEnd)-len(deleted), " ", len(deleted)))
		told := readJournal(journal)[len(beforeEnd):]
		Expect(told).To(HaveLen(len(staying)), "each that runs is told that the operator stops, and waited for")
		for _, line := range told {
			Expect(line.Handler).To(Equal(kopf.ErrExiting.Error()))
		}
		for i := range created {
			if stays(i) {
				w.patch(ctx, name(i), `{"metadata":{"finalizers":[]}}`)
			}
		}
	})
})

var _ = Describe("an operator with daemons that takes over from Python", func() {
	// left creates an object as Python's Kopf 1.44.6 leaves one on which a daemon runs: the
	// finalizer, whoever needs it, and the last handled state; the rest is in memory only.
	left := func(ctx context.Context, w *world, name string) {
		w.post(ctx, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":%q,"finalizers":[%q],"annotations":{%q:%q}},"spec":{"value":1}}`,
			w.group, name, ourFinalizer, lastHandled, `{"spec":{"value":1}}`+"\n"))
	}
	for _, holds := range []bool{false, true} {
		It(fmt.Sprintf("DMN-3 goes on with the finalizer as on.Finalize says: %t", holds), func(ctx SpecContext) {
			w, c := reported(ctx, "python"), &calls{}
			options := []on.DaemonOption{w.widgets, w.in, on.ID("d")}
			if holds {
				options = append(options, on.Finalize())
			}
			on.Daemon(func(ctx context.Context, d *kopf.Daemon[*Widget]) error {
				c.add("%s begins", d.Object().Name)
				<-ctx.Done()
				c.add("%s leaves", d.Object().Name)
				return nil
			}, options...)
			left(ctx, w, "runs")
			left(ctx, w, "terminating")
			w.remove(ctx, "terminating")
			Expect(w.isGone(ctx, "terminating")()).To(BeFalse(), "Python holds it")

			requests := w.requests(ctx, func() {
				w.start(noErrors)
				Eventually(c.of("runs begins")).Should(Equal(1))
				Eventually(w.isGone(ctx, "terminating")).Should(BeTrue())
			})
			if holds {
				Expect(requests).To(Equal(map[string]int{"PATCH": 1}), "the finalizer of what is terminating")
				Expect(w.finalizers(ctx, "runs")()).To(ConsistOf(ourFinalizer))
			} else {
				Expect(requests).To(Equal(map[string]int{"PATCH": 2}), "both finalizers")
				Expect(w.finalizers(ctx, "runs")()).To(BeEmpty())
			}
			Expect(c.of("terminating begins")()).To(BeZero(), "DMN-15")
			w.remove(ctx, "runs")
			Eventually(w.isGone(ctx, "runs")).Should(BeTrue())
			Eventually(c.of("runs leaves")).Should(Equal(1))
			Expect(slices.Sorted(slices.Values(c.inOrder()))).To(Equal([]string{"runs begins", "runs leaves"}))
		})
	}
})
