package kopf_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
)

// freeAddress is one that nobody listens at now.
func freeAddress() string {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer l.Close()
	return l.Addr().String()
}

var _ = Describe("an operator's endpoints", func() {
	It("ACT-6 T154 tell of health and probes, count, and say why, before and while it runs, and are gone after it", func(ctx SpecContext) {
		w, address := newWorld(ctx, "endpoints", true), freeAddress()
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
		get := func(path string) func() (string, error) {
			return func() (string, error) {
				response, err := client.Get("http://" + address + path)
				if err != nil {
					return "", err
				}
				defer response.Body.Close()
				raw, err := io.ReadAll(response.Body)
				return fmt.Sprint(response.StatusCode, " ", string(raw)), err
			}
		}
		begin := make(chan struct{})
		on.Startup(func(ctx context.Context, _ *kopf.Activity) error { <-begin; return nil }, on.In(w.reg))
		on.Probe(func(context.Context, *kopf.Probe) (int, error) { return 7, nil }, on.ID("seven"), on.In(w.reg))
		on.Create(func(context.Context, *kopf.Change[*Widget]) error {
			return kopf.Retry(time.Hour, errors.New("no licence"))
		}, w.widgets, w.in, on.ID("license"))
		on.Create(func(context.Context, *kopf.Change[*Widget]) error { return nil }, w.widgets, w.in, on.ID("gold"), on.Label("tier", "gold"))
		on.Daemon(func(ctx context.Context, _ *kopf.Daemon[*Widget]) error { <-ctx.Done(); return context.Cause(ctx) }, w.widgets, w.in, on.ID("watch"))
		op := w.start(func(o *kopf.Options) {
			o.Settings.Endpoints = settings.Endpoints{Address: address, Liveness: "http://" + address + "/alive"}
		})
		Eventually(get("/healthz")).Should(Equal("200 ok"), "while it starts")
		Expect(get("/readyz")()).To(ContainSubstring("[-]indices failed"))
		close(begin)
		Eventually(get("/readyz")).Should(Equal("200 ok"))
		Expect(get("/alive")()).To(Equal(`200 {"seven":7}`))

		live, err := client.Get("http://" + address + "/debug/kopf/events")
		Expect(err).NotTo(HaveOccurred())
		defer live.Body.Close()
		w.create(ctx, "w1", 1)
		lines := bufio.NewScanner(live.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), "no licence") {
		}
		Expect(lines.Text()).To(HavePrefix("data: "))
		Eventually(get("/debug/kopf")).Should(And(ContainSubstring("license retried"), ContainSubstring("daemon watch"), ContainSubstring("in 59m")))
		var why strings.Builder
		Expect(kopf.Why(ctx, &why, kopf.WhyOptions{Address: address, Kind: "widgets." + w.group, Name: "w1", Client: client})).To(Succeed())
		Expect(why.String()).To(And(
			ContainSubstring("now: waiting (next in 59m"), ContainSubstring("license retried, attempt 1: no licence (next in 1h"),
			ContainSubstring("gold skipped, for label tier does not match"), ContainSubstring("wrote object: written"), ContainSubstring("running: daemon watch")))
		Expect(get("/metrics")()).To(And(
			ContainSubstring(`kopf_handlers_waiting{handler="license",kind="widgets.`+w.group+`"} 1`),
			ContainSubstring(`kopf_objects{kind="widgets.`+w.group+`"} 1`)))
		op.stop() // with the live view still open
		_, err = get("/healthz")()
		Expect(err).To(MatchError(ContainSubstring("connection refused")))
	})
})
