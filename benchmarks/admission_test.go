package benchmarks

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/internal/cluster"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

const (
	reviewsPerRound = 2000
	warmingReviews  = 300
	portVar         = "KOPF_BENCH_PORT" // where operators that answer reviews listen
)

// reviewKinds are the requests that are measured, with the path that they go to. Updates
// have two objects, and the mutating handlers change one field.
var reviewKinds = []struct{ name, path string }{
	{"create", "/validate"}, {"update", "/validate"}, {"mutate", "/mutate"},
}

// BenchmarkAdmission posts the same reviews to an operator of this library and to a webhook
// of controller-runtime, in turn, over one kept connection of HTTP/2 each.
func BenchmarkAdmission(b *testing.B) {
	type cost struct{ p50, p99, cpu, allocs float64 }
	kinds := []string{"kopf-webhook", "webhook"}
	runs := map[string][]cost{} // by the kind of operator and of the request
	for round := 0; b.Loop(); round++ {
		var sides []*answerer
		for turn := range kinds {
			sides = append(sides, startAnswerer(b, kinds[(round+turn)%len(kinds)]))
		}
		for _, kind := range reviewKinds {
			review := reviewOf(kind.name)
			for range warmingReviews {
				for _, side := range sides {
					side.post(b, kind.path, review)
				}
			}
			for _, side := range sides {
				side.before, side.took = side.process.ask(b, "usage"), side.took[:0]
			}
			for range reviewsPerRound {
				for _, side := range sides {
					side.took = append(side.took, side.post(b, kind.path, review))
				}
			}
			for _, side := range sides {
				after := side.process.ask(b, "usage")
				slices.Sort(side.took)
				key := side.kind + kind.name
				runs[key] = append(runs[key], cost{
					p50:    side.took[len(side.took)/2].Seconds(),
					p99:    side.took[len(side.took)*99/100].Seconds(),
					cpu:    (after.CPU - side.before.CPU).Seconds() / reviewsPerRound,
					allocs: float64(after.Allocs-side.before.Allocs) / reviewsPerRound,
				})
			}
		}
		for _, side := range sides {
			side.client.CloseIdleConnections()
			if answered := side.process.stop(b).Handled; answered < int64(len(reviewKinds)*(reviewsPerRound+warmingReviews)) {
				b.Errorf("%s: %d calls of handlers", side.kind, answered)
			}
		}
	}
	table := "\n\t\t\tp50 µs\tp99 µs\tCPU µs\tallocations"
	for _, kind := range reviewKinds {
		var medians []cost
		for _, side := range kinds {
			all := runs[side+kind.name]
			m := cost{
				median(all, func(c cost) float64 { return c.p50 }), median(all, func(c cost) float64 { return c.p99 }),
				median(all, func(c cost) float64 { return c.cpu }), median(all, func(c cost) float64 { return c.allocs }),
			}
			medians = append(medians, m)
			table += fmt.Sprintf("\n%-6s %-12s\t%.0f\t%.0f\t%.0f\t%.0f", kind.name, side, 1e6*m.p50, 1e6*m.p99, 1e6*m.cpu, m.allocs)
		}
		ours, peer := medians[0], medians[1]
		b.ReportMetric(ours.p50/peer.p50, kind.name+"-p50-ratio")
		b.ReportMetric(ours.p99/peer.p99, kind.name+"-p99-ratio")
		b.ReportMetric(ours.cpu/peer.cpu, kind.name+"-cpu-ratio")
		b.ReportMetric(ours.allocs/peer.allocs, kind.name+"-allocs-ratio")
	}
	b.Log(table)
	b.ReportMetric(0, "ns/op")
}

// answerer is an operator that answers reviews, with its client.
type answerer struct {
	kind    string
	process *process
	client  *http.Client
	address string
	before  usage
	took    []time.Duration
}

// startAnswerer returns when the operator answers.
func startAnswerer(b *testing.B, kind string) *answerer {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	b.Setenv(portVar, strconv.Itoa(port))
	a := &answerer{
		kind: kind, process: start(b, kind, eventGroup, 0), address: "https://" + l.Addr().String(),
		client: &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		}},
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := a.try(reviewKinds[0].path, reviewOf(reviewKinds[0].name))
		if err == nil {
			return a
		}
		if time.Since(began) > 30*time.Second {
			b.Fatalf("%s does not answer: %v", kind, err)
		}
	}
}

// post returns how long the answer took.
func (a *answerer) post(b *testing.B, path string, review []byte) time.Duration {
	b.Helper()
	began := time.Now()
	if err := a.try(path, review); err != nil {
		b.Fatalf("%s: %v", a.kind, err)
	}
	return time.Since(began)
}

func (a *answerer) try(path string, review []byte) error {
	response, err := a.client.Post(a.address+path+"?timeout=10s", "application/json", bytes.NewReader(review))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	changes := bytes.Contains(answer, []byte(`"patch":`))
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 ||
		!bytes.Contains(answer, []byte(`"allowed":true`)) || changes != (path == "/mutate") {
		return fmt.Errorf("%s: answer is %s, %s: %s", path, response.Status, response.Proto, answer)
	}
	return nil
}

// reviewOf is a request as the API server sends it.
func reviewOf(kind string) []byte {
	encoded := func(w *Widget) runtime.RawExtension {
		raw, err := json.Marshal(w)
		if err != nil {
			panic(err) // plain data
		}
		return runtime.RawExtension{Raw: raw}
	}
	w := newWidget(eventGroup, 7)
	w.UID = "3a5f0b52-0000-4000-8000-000000000007"
	request := &admissionv1.AdmissionRequest{
		UID:             types.UID("70b6d1a5-8c3e-4a10-9c53-000000000001"),
		Kind:            metav1.GroupVersionKind{Group: eventGroup, Version: "v1", Kind: cluster.Kind},
		Resource:        metav1.GroupVersionResource{Group: eventGroup, Version: "v1", Resource: cluster.Plural},
		RequestKind:     &metav1.GroupVersionKind{Group: eventGroup, Version: "v1", Kind: cluster.Kind},
		RequestResource: &metav1.GroupVersionResource{Group: eventGroup, Version: "v1", Resource: cluster.Plural},
		Name:            w.Name, Namespace: w.Namespace, Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: "somebody", Groups: []string{"system:authenticated"}},
		DryRun:   new(bool),
	}
	if kind == "update" {
		request.Operation, request.OldObject = admissionv1.Update, encoded(w)
		w.Spec.Value++
	}
	request.Object = encoded(w)
	raw, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  request,
	})
	if err != nil {
		panic(err)
	}
	return raw
}

// valid is the rule of both sides. There is no old one on creation.
func valid(w, old *Widget) error {
	handled.Add(1)
	for _, c := range w.Spec.Components {
		if c.Image == "" || c.Replicas < 1 {
			return fmt.Errorf("component %s is not complete", c.Name)
		}
	}
	if old != nil && w.Spec.Backup.Target != old.Spec.Backup.Target {
		return errors.New("the target of the backup cannot be changed")
	}
	return nil
}

// complete is what both sides change.
func complete(w *Widget) {
	handled.Add(1)
	w.Spec.Backup.Schedule = "17 4 * * *"
}

// runKopfWebhook answers with this library.
func runKopfWebhook(ctx context.Context, o operatorOptions) error {
	reg := kopf.NewRegistry()
	widgets, in := on.Resource(o.group+"/v1", cluster.Plural), on.In(reg)
	on.Validate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
		return valid(a.New, a.Old)
	}, widgets, in, on.ID("valid"), on.Operations("CREATE", "UPDATE"))
	on.Mutate(func(_ context.Context, a *kopf.Admission[*Widget]) error {
		complete(a.Object)
		return nil
	}, widgets, in, on.ID("complete"), on.Operations("CREATE", "UPDATE"))
	port, err := strconv.Atoi(os.Getenv(portVar))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	operator, err := kopf.New(kopf.Options{
		Registry: reg, Config: streamed(newEventAPI(0)), Logger: log,
		Settings: kopf.Settings{Admission: settings.Admission{
			Endpoint: webhook.URL{Port: port}, Host: "127.0.0.1", Certificates: inMemory{&webhook.OwnCertificates{Log: log}},
		}},
	})
	if err != nil {
		return err
	}
	o.ready()
	return operator.Run(ctx)
}

// inMemory are certificates that are not connected to a Secret, for there is no cluster.
type inMemory struct{ webhook.Certificates }

// runWebhook answers with controller-runtime, in the way of its documentation.
func runWebhook(ctx context.Context, o operatorOptions) error {
	port, err := strconv.Atoi(os.Getenv(portVar))
	if err != nil {
		return err
	}
	certificates, served := &webhook.OwnCertificates{Log: slog.New(slog.DiscardHandler)}, make(chan struct{}, 1)
	go func() {
		_ = certificates.Run(ctx, []string{"127.0.0.1"}, func() {
			select {
			case served <- struct{}{}:
			default:
			}
		})
	}()
	<-served
	scheme := widgetScheme(o.group)
	server := crwebhook.NewServer(crwebhook.Options{
		Host: "127.0.0.1", Port: port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificates.Certificate() }
		}},
	})
	server.Register("/validate", admission.WithValidator[*Widget](scheme, validator{}))
	server.Register("/mutate", &admission.Webhook{Handler: &completer{admission.NewDecoder(scheme)}})
	o.ready()
	return server.Start(ctx)
}

type validator struct{}

func (validator) ValidateCreate(_ context.Context, w *Widget) (admission.Warnings, error) {
	return nil, valid(w, nil)
}

func (validator) ValidateUpdate(_ context.Context, old, w *Widget) (admission.Warnings, error) {
	return nil, valid(w, old)
}

func (validator) ValidateDelete(context.Context, *Widget) (admission.Warnings, error) {
	return nil, nil
}

type completer struct{ decoder admission.Decoder }

// Handle makes a patch of what has become of the object.
func (c *completer) Handle(_ context.Context, request admission.Request) admission.Response {
	w := &Widget{}
	if err := c.decoder.Decode(request, w); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	complete(w)
	raw, err := json.Marshal(w)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, raw)
}
