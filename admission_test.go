package kopf_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kopf-go/kopf"
	"github.com/kopf-go/kopf/on"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// ADM-2: that nobody knows how the API server reaches handlers is a mistake, told together
// with those of registrations.
func TestEndpointIsNeeded_ADM2(t *testing.T) {
	allow := func(context.Context, *kopf.Admission[*Widget]) error { return nil }
	for name, c := range map[string]struct {
		settings settings.Admission
		want     []string
	}{
		"nothing is said":     {settings.Admission{}, []string{"admission_test.go:", "validate handler check", "Settings.Admission.Endpoint"}},
		"a tunnel to nowhere": {settings.Admission{Endpoint: webhook.Service{}, Tunnel: tunnel{}}, []string{"Tunnel needs an Endpoint that is a webhook.URL"}},
		"half a second":       {settings.Admission{Endpoint: webhook.URL{}, Timeout: time.Second / 2}, []string{"Timeout is 500ms"}},
		"a minute":            {settings.Admission{Endpoint: webhook.URL{}, Timeout: time.Minute}, []string{"Timeout is 1m0s"}},
		"a URL":               {settings.Admission{Endpoint: webhook.URL{}}, nil},
		"a Service":           {settings.Admission{Endpoint: webhook.Service{Namespace: "ns", Name: "op"}, Timeout: time.Second}, nil},
	} {
		reg := kopf.NewRegistry()
		on.Validate(allow, on.Resource("example.com/v1", "widgets"), on.In(reg), on.ID("check"))
		_, err := kopf.New(kopf.Options{Registry: reg, Config: &rest.Config{Host: "http://none.invalid"}, Settings: kopf.Settings{Admission: c.settings}})
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, text := range c.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %v, want %q in it", name, err, text)
			}
		}
	}
}

type tunnel struct{ webhook.Tunnel }
