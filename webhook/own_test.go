package webhook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestMadeInMemory_ADM19(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		own, bundles := &OwnCertificates{}, 0
		done := make(chan error, 1)
		go func() { done <- own.Run(ctx, []string{"localhost", "127.0.0.1", "::1"}, func() { bundles++ }) }()
		synctest.Wait()
		certificate, err := own.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		trusted, err := parseBundle(own.Bundle())
		if err != nil || len(trusted) != 1 || bundles != 1 {
			t.Fatalf("bundle %v, %v, told %d times", trusted, err, bundles)
		}
		if err := certificate.Leaf.CheckSignatureFrom(trusted[0]); err != nil || !covers(certificate.Leaf, []string{"localhost", "127.0.0.1", "::1"}) {
			t.Errorf("%v, for %v %v", err, certificate.Leaf.DNSNames, certificate.Leaf.IPAddresses)
		}
		if left := time.Until(own.NotAfter()); left < 364*24*time.Hour || Healthy(own) != nil {
			t.Errorf("%s left, health %v", left, Healthy(own))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
