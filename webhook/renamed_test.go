package webhook

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestOtherNames_ADM19 has replicas of an old and a new version that are reached by other
// names share a Secret: one new certificate of the same authority, for both, and then peace.
func TestOtherNames_ADM19(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		start := func(name string) *OwnCertificates {
			own := &OwnCertificates{Log: slog.New(slog.DiscardHandler)}
			own.Connect(s.client(), secretName, nil)
			go func() { done <- own.Run(ctx, []string{name}, func() {}) }()
			return own
		}
		older := start("old.example.com")
		time.Sleep(2 * time.Second)
		before := older.Bundle()
		newer := start("new.example.com")
		time.Sleep(time.Hour)
		for _, own := range []*OwnCertificates{older, newer} {
			certificate, err := own.Certificate()
			if err != nil || !covers(certificate.Leaf, []string{"old.example.com", "new.example.com"}) {
				t.Errorf("%v, for %v", err, certificate.Leaf.DNSNames)
			}
			if string(own.Bundle()) != string(before) {
				t.Error("the authority is another one")
			}
		}
		if s.version != 2 {
			t.Errorf("%d writes, 2 expected", s.version)
		}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		s.cut()
		synctest.Wait()
	})
}

func TestFieldsThatMakeNoSense_ADM19(t *testing.T) {
	named := types.NamespacedName{Namespace: "ops", Name: "hooks"}
	for what, own := range map[string]*OwnCertificates{
		"short life":   {Lifetime: time.Second},
		"long renewal": {Lifetime: time.Hour, RenewBefore: time.Hour},
		"long settle":  {Lifetime: time.Hour, Settle: time.Hour},
		"no name":      {Secrets: (&store{}).client(), Secret: types.NamespacedName{Namespace: named.Namespace}},
	} {
		if own.Run(t.Context(), []string{"localhost"}, func() {}) == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if (&OwnCertificates{}).Run(t.Context(), nil, func() {}) == nil {
		t.Error("without names: no error")
	}
	if (&CertificateFiles{}).Run(t.Context(), nil, func() {}) == nil {
		t.Error("without files: no error")
	}
	if (&CertificateSecret{}).Run(t.Context(), nil, func() {}) == nil {
		t.Error("without a Secret: no error")
	}
}
