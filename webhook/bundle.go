package webhook

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"time"
)

// bundle is a set of certificates that clients trust, oldest first, so that the same set is
// always the same bytes. Certificates come into it and leave it by their end only: whoever
// joins two bundles has all that any of them had.
type bundle []*x509.Certificate

// parseBundle reads PEM, and fails if there is anything else, or nothing.
func parseBundle(data []byte) (bundle, error) {
	var b bundle
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		block, after := pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("there is something that is no certificate")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		b, rest = append(b, certificate), after
	}
	if len(b) == 0 {
		return nil, errors.New("there is no certificate")
	}
	return b.with(nil), nil
}

// with is both sets together.
func (b bundle) with(more bundle) bundle {
	all := slices.Concat(b, more)
	slices.SortFunc(all, func(x, y *x509.Certificate) int {
		return cmp.Or(x.NotBefore.Compare(y.NotBefore), bytes.Compare(x.Raw, y.Raw))
	})
	return slices.CompactFunc(all, (*x509.Certificate).Equal)
}

// at is the set without what has ended.
func (b bundle) at(now time.Time) bundle {
	return slices.DeleteFunc(slices.Clone(b), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}

func (b bundle) has(certificate *x509.Certificate) bool {
	return slices.ContainsFunc(b, certificate.Equal)
}

func (b bundle) equal(other bundle) bool {
	return slices.EqualFunc(b, other, (*x509.Certificate).Equal)
}

func (b bundle) pem() []byte {
	var out []byte
	for _, certificate := range b {
		out = append(out, encodeCertificate(certificate.Raw)...)
	}
	return out
}

// trusts tells whether clients that trust the set take this certificate now.
func (b bundle) trusts(p *pair, now time.Time) bool {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, certificate := range b {
		roots.AddCert(certificate)
	}
	for _, raw := range p.tls.Certificate[1:] {
		if certificate, err := x509.ParseCertificate(raw); err == nil {
			between.AddCert(certificate)
		}
	}
	_, err := p.tls.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now})
	return err == nil
}
