package settings_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/settings"
)

// ACT-6: the liveness URL has the host localhost and the port 80 unless it says otherwise,
// and only http.
func TestLivenessURL_ACT6(t *testing.T) {
	for url, want := range map[string][2]string{
		"":                             {"", ""},
		"http://0.0.0.0:8080/healthz":  {"0.0.0.0:8080", "/healthz"},
		"http://:8080":                 {"localhost:8080", "/"},
		"http:///alive/":               {"localhost:80", "/alive"},
		"http://[::]:81/a/b":           {"[::]:81", "/a/b"},
		"http://operator.example/kopf": {"operator.example:80", "/kopf"},
	} {
		e := settings.Endpoints{Liveness: url}
		address, path, err := e.LivenessAt()
		if address != want[0] || path != want[1] || err != nil || e.Validate() != nil {
			t.Errorf("%s: %q %q %v", url, address, path, err)
		}
	}
	for _, url := range []string{"https://localhost/", "localhost:8080", "http://x/{a}", "http://x/?q", "http://u@x/", ":"} {
		if err := (settings.Endpoints{Liveness: url}).Validate(); err == nil || !strings.Contains(err.Error(), "Settings.Endpoints: Liveness") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := (settings.Endpoints{Address: "8080", Liveness: "x"}).Validate(); err == nil || strings.Count(err.Error(), "Settings.Endpoints:") != 2 {
		t.Error("not all mistakes at once:", err)
	}
}

func TestWhereEndpointsListen(t *testing.T) {
	for _, c := range []struct {
		address, liveness string
		want              []string
	}{
		{"", "", nil},
		{":8080", "", []string{":8080"}},
		{":8080", "http://0.0.0.0:8080/alive", []string{":8080"}},
		{":8080", "http://localhost:8080/alive", []string{":8080"}},
		{"127.0.0.1:8080", "http://0.0.0.0:8081/alive", []string{"127.0.0.1:8080", "0.0.0.0:8081"}},
		{"", "http://0.0.0.0:8080/alive", []string{"0.0.0.0:8080"}},
	} {
		if got := (settings.Endpoints{Address: c.address, Liveness: c.liveness}).Listen(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
