package endpoints

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/decisions"
)

func (s *stand) why(o WhyOptions) (string, error) {
	var out strings.Builder
	o.Address, o.Client = s.url, s.client
	err := Why(s.t.Context(), &out, o)
	return out.String(), err
}

func TestWhy(t *testing.T) {
	s := serve(t)
	s.record("resize")
	text, err := s.why(WhyOptions{Kind: "widgets", Name: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"widgets.demo.example/ns/w1\n  now: waiting (next in ", "running: daemon watch", " update, changed: spec.size\n",
		"    resize retried, attempt 1: resize (next in 1h0m0s", "    other skipped, for label tier does not match\n",
		"not asked lately: purge (delete, label tier)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if text, err = s.why(WhyOptions{Kind: "widgets", Name: "calm"}); err != nil || !strings.Contains(text, "unchanged since it was handled: nothing to do") {
		t.Error(text, err)
	}
	text, err = s.why(WhyOptions{Kind: "widgets", Name: "w1", Output: "json"})
	var accounts []decisions.Account
	if err != nil || json.Unmarshal([]byte(text), &accounts) != nil || len(accounts) != 1 || len(accounts[0].Decisions) != 1 {
		t.Error(text, err)
	}
}

// What cannot be answered is told with what to do about it.
func TestWhyNot(t *testing.T) {
	s := serve(t)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer other.Close()
	for want, o := range map[string]WhyOptions{
		`knows no widgets.demo.example "w9"`:          {Kind: "widget", Name: "w9"},
		`does not follow "gadgets"; it follows: widg`: {Kind: "gadgets", Name: "w1"},
		`output "xml" is not known`:                   {Kind: "widgets", Name: "w1", Output: "xml"},
	} {
		if _, err := s.why(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	for want, address := range map[string]string{
		"no operator answers": "127.0.0.1:1", "is no operator's": other.URL, "first path segment": "http://a b",
	} {
		err := Why(t.Context(), new(strings.Builder), WhyOptions{Address: address, Kind: "widgets", Name: "w1"})
		if err == nil || want != "first path segment" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// What others have written cannot steer the terminal.
func TestWhyIsPrintable(t *testing.T) {
	s := serve(t)
	s.record("\x1b[2Jclear\u009b")
	if text, err := s.why(WhyOptions{Kind: "widgets", Name: "w1"}); err != nil || strings.ContainsAny(text, "\x1b\u009b") {
		t.Errorf("%q %v", text, err)
	}
}
