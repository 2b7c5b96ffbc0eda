package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kopf-go/kopf/internal/metrics"
)

// served is what servers and clients are told: the certificate in use, what to trust, and
// since when clients are known to trust it. It is safe for concurrent use.
type served struct {
	mu      sync.Mutex
	pair    *pair // nil: none yet
	bundle  bundle
	known   map[string]time.Time // certificates that all clients trust, as raw bytes: since when
	trouble error                // what keeps it from going on; nil: nothing
	wake    chan struct{}        // has something in it when Run has to look again
}

// Certificate is what to serve with now. It fails as long as there is none, and says why.
func (s *served) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pair != nil:
		return s.pair.tls, nil
	case s.trouble != nil:
		return nil, fmt.Errorf("%w: %w", errNone, s.trouble)
	}
	return nil, errNone
}

// Bundle is what clients have to trust now, in PEM; nil as long as nobody knows.
func (s *served) Bundle() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bundle.pem()
}

// NotAfter is when the certificate ends; zero: there is none.
func (s *served) NotAfter() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pair == nil {
		return time.Time{}
	}
	return s.pair.tls.Leaf.NotAfter
}

// Applied tells that the configurations have this bundle from now on. New certificates are
// served only when what they are to be trusted by has been in it for a while. The process
// that keeps the configurations has to call it, after its start as well; others need not.
func (s *served) Applied(pem []byte) {
	applied, err := parseBundle(pem)
	if err != nil {
		return // nobody trusts anything by this
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, known, news := time.Now(), map[string]time.Time{}, false
	for _, certificate := range applied {
		raw := string(certificate.Raw)
		since, before := s.known[raw]
		if !before {
			since, news = now, true
		}
		known[raw] = since
	}
	s.known = known
	if news {
		s.nudge()
	}
}

// nudge makes Run look again. s.mu is held.
func (s *served) nudge() {
	select {
	case s.waking() <- struct{}{}:
	default:
	}
}

// waking is the channel for that. s.mu is held.
func (s *served) waking() chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	return s.wake
}

func (s *served) woken() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waking()
}

// applied is what all clients are known to have trusted for so long, of this set.
func (s *served) applied(of bundle, long time.Duration) bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out bundle
	for _, certificate := range of {
		if since, known := s.known[string(certificate.Raw)]; known && time.Since(since) >= long {
			out = append(out, certificate)
		}
	}
	return out
}

// since is when the last of these certificates was first known to all clients; zero: not all are.
func (s *served) since(of bundle) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last time.Time
	for _, certificate := range of {
		since, known := s.known[string(certificate.Raw)]
		if !known {
			return time.Time{}
		}
		last = latest(last, since)
	}
	return last
}

// trust says what clients have to trust from now on, and tells whether that is news.
func (s *served) trust(b bundle) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = !s.bundle.equal(b)
	s.bundle = b
	return news
}

func (s *served) trusted() bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bundle
}

// serve is the certificate to use from now on.
func (s *served) serve(p *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pair = p
	metrics.CertificateExpiry.Set(float64(p.tls.Leaf.NotAfter.Unix()))
}

// complain remembers what is wrong, and logs it unless it is the same as before; nil: all is well again.
func (s *served) complain(ctx context.Context, log *slog.Logger, err error) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = err
	s.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		log.ErrorContext(ctx, "The certificate for webhooks cannot be looked after. Trying again.", "error", err)
	case err == nil && before != nil:
		log.InfoContext(ctx, "The certificate for webhooks is looked after again.")
	}
}

// Healthy fails if there is no certificate, if it has ended, or if less than a tenth of its
// life is left, which means that nobody has renewed it in time.
//
// Say so where somebody is told. As a readiness check it takes the operator out of its
// Service while the certificate is still good.
func Healthy(c Certificates) error {
	certificate, err := c.Certificate()
	if err != nil {
		return err
	}
	end, now := c.NotAfter(), time.Now()
	switch life := end.Sub(certificate.Leaf.NotBefore); {
	case now.After(end):
		return fmt.Errorf("the certificate for webhooks has ended at %s", end)
	case end.Sub(now) < life/10:
		return fmt.Errorf("the certificate for webhooks ends at %s, and nobody has renewed it", end)
	}
	return nil
}

func (s *served) troubled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble != nil
}
