package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	secretName = types.NamespacedName{Namespace: "ops", Name: "operator-webhook"}
	serviceOf  = Service{Namespace: "ops", Name: "hooks"}
)

const serverName = "hooks.ops.svc" // as the API server asks for it

// lifetime of certificates in tests; a renewal begins between 6 and 7 minutes after the start.
const lifetime = 10 * time.Minute

// replica is one process of an operator.
type replica struct {
	own    *OwnCertificates
	stop   context.CancelFunc
	done   chan struct{}
	bundle chan struct{} // has something in it when there is another one
}

// world is a cluster: replicas with a Secret, one of which keeps the configuration, and API
// servers that notice it late.
type world struct {
	t          *testing.T
	store      *store
	replicas   []*replica
	applyDelay func() time.Duration
	lag        time.Duration // of API servers
	verified   map[verified]time.Time

	mu      sync.Mutex
	leader  *replica
	applied []applied // all versions of the configuration
}

type applied struct {
	at     time.Time
	bundle []byte
}

func newWorld(t *testing.T) *world {
	return &world{t: t, store: &store{}, lag: 30 * time.Second, applyDelay: func() time.Duration { return 5 * time.Second }}
}

// start starts a replica; the first one that lives keeps the configuration.
func (w *world) start(c *client) *replica {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &replica{
		own:    &OwnCertificates{Secret: secretName, Secrets: c, Lifetime: lifetime, Log: slog.New(slog.DiscardHandler)},
		stop:   cancel,
		done:   make(chan struct{}),
		bundle: make(chan struct{}, 1),
	}
	w.mu.Lock()
	w.replicas = append(w.replicas, r)
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		if err := r.own.Run(ctx, serviceOf.Names(), func() {
			select {
			case r.bundle <- struct{}{}:
			default:
			}
		}); err != nil {
			w.t.Error(err)
		}
	})
	both.Go(func() { w.configure(ctx, r) })
	go func() { both.Wait(); close(r.done) }()
	return r
}

// configure is what a keeper of configurations does, as long as its replica is the leader.
func (w *world) configure(ctx context.Context, r *replica) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-r.bundle:
		case <-time.After(3 * time.Second): // it may have become the leader
		}
		w.mu.Lock()
		if w.leader == nil {
			w.leader = r
		}
		leads, last := w.leader == r, []byte(nil)
		if len(w.applied) > 0 {
			last = w.applied[len(w.applied)-1].bundle
		}
		w.mu.Unlock()
		bundle := r.own.Bundle()
		if !leads || bundle == nil {
			continue
		}
		if !bytes.Equal(bundle, last) {
			select {
			case <-time.After(w.applyDelay()):
			case <-ctx.Done():
				return
			}
			w.mu.Lock()
			w.applied = append(w.applied, applied{time.Now(), bundle})
			w.mu.Unlock()
		}
		r.own.Applied(bundle)
	}
}

// kill ends a replica as if its process had died.
func (w *world) kill(r *replica) {
	r.stop()
	<-r.done
	w.gone(r)
}

// gone forgets a replica that has ended.
func (w *world) gone(r *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leader == r {
		w.leader = nil
	}
	for i, other := range w.replicas {
		if other == r {
			w.replicas = append(w.replicas[:i:i], w.replicas[i+1:]...)
			return
		}
	}
}

func (w *world) end() {
	for _, r := range w.live() {
		w.kill(r)
	}
	w.store.cut()
	synctest.Wait()
}

func (w *world) live() []*replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*replica(nil), w.replicas...)
}

// seen are the versions of the configuration that some API server may go by now.
func (w *world) seen() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out [][]byte
	for i := len(w.applied) - 1; i >= 0; i-- {
		out = append(out, w.applied[i].bundle)
		if time.Since(w.applied[i].at) >= w.lag {
			break
		}
	}
	return out
}

// calls is how many requests were made.
type calls struct{ made, failed int }

// second lets a second go by and has each API server call each replica that serves.
func (w *world) second(call func(own *OwnCertificates, bundle []byte) error, n *calls) {
	time.Sleep(time.Second)
	for _, r := range w.live() {
		if _, err := r.own.Certificate(); err != nil {
			continue // not ready: the Service does not lead there
		}
		for _, bundle := range w.seen() {
			n.made++
			if err := call(r.own, bundle); err != nil {
				n.failed++
				if n.failed <= 3 {
					certificate, _ := r.own.Certificate()
					trusted, _ := parseBundle(bundle)
					w.t.Errorf("%s: %v; served by %s until %s, trusted %v", time.Now().Format(time.TimeOnly), err, certificate.Leaf.Issuer, certificate.Leaf.NotAfter.Format(time.TimeOnly), subjects(trusted))
				}
			}
		}
	}
}

func subjects(b bundle) (out []string) {
	for _, c := range b {
		out = append(out, c.Subject.CommonName+" until "+c.NotAfter.Format(time.TimeOnly))
	}
	return out
}

// shake makes a connection as the API server does.
func shake(own Certificates, bundle []byte) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	near, far := net.Pipe()
	for _, end := range []net.Conn{near, far} { // an end that refuses has nobody who reads that
		_ = end.SetDeadline(time.Now().Add(100 * time.Millisecond))
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer far.Close()
		server := tls.Server(far, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.Certificate() }})
		if server.Handshake() == nil {
			_, _ = server.Write([]byte("yes"))
		}
	}()
	connection := tls.Client(near, &tls.Config{RootCAs: pool, ServerName: serverName})
	err := connection.Handshake()
	if err == nil {
		_, err = connection.Read(make([]byte, 3))
	}
	near.Close()
	<-served
	return err
}

// handshake shakes hands, under the race detector now and then only, and verifies else.
func (w *world) handshake(own *OwnCertificates, bundle []byte) error {
	if time.Now().Unix()%secondsPerHandshake == 0 {
		return shake(own, bundle)
	}
	return w.verify(own, bundle)
}

// verified is a certificate that was found to be trusted by a bundle, until the chain's end.
type verified struct {
	certificate *x509.Certificate
	bundle      string
}

// verify does what a client does with the certificate, without a connection.
func (w *world) verify(own *OwnCertificates, bundle []byte) error {
	certificate, err := own.Certificate()
	if err != nil {
		return err
	}
	key := verified{certificate.Leaf, string(bundle)}
	if until, known := w.verified[key]; known && !time.Now().After(until) {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	chains, err := certificate.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: serverName, CurrentTime: time.Now()})
	if err != nil {
		return err
	}
	until := certificate.Leaf.NotAfter
	for _, link := range chains[0] {
		until = earliest(until, link.NotAfter)
	}
	if w.verified == nil {
		w.verified = map[verified]time.Time{}
	}
	w.verified[key] = until
	return nil
}
