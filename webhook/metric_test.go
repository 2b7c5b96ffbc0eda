package webhook

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestExpiryAsMetric_T165(t *testing.T) {
	p, s := made(t, madeAuthority(t)), served{}
	s.serve(p)
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "kopf_webhook_certificate_expiry_seconds" {
			if got, want := family.GetMetric()[0].GetGauge().GetValue(), float64(p.tls.Leaf.NotAfter.Unix()); got != want || s.NotAfter() != p.tls.Leaf.NotAfter {
				t.Errorf("%v, expected %v", got, want)
			}
			return
		}
	}
	t.Error("there is no such metric")
}
