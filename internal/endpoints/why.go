package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kopf-go/kopf/internal/decisions"
)

// WhyOptions say which object is asked about, and whom.
type WhyOptions struct {
	// Address is where the operator serves. Default: http://localhost:8080.
	Address string
	// Kind is the plural name of the resource, with its group or without, or its kind.
	Kind, Name string
	// Namespace is empty for cluster-scoped objects, and for any.
	Namespace string
	// Output is text (default) or json.
	Output string
	// Client makes the request. Default: one that waits for 10 seconds.
	Client *http.Client
}

// Why asks an operator what it has decided for an object, and prints it.
func Why(ctx context.Context, out io.Writer, o WhyOptions) error {
	document, err := o.fetch(ctx)
	if err != nil {
		return err
	}
	if o.Output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(document.Objects)
	}
	if o.Output != "" && o.Output != "text" {
		return fmt.Errorf("output %q is not known: use text or json", o.Output)
	}
	var text strings.Builder
	for i, account := range document.Objects {
		if i > 0 {
			text.WriteByte('\n')
		}
		explain(&text, account, document)
	}
	_, err = io.WriteString(out, text.String())
	return err
}

func (o WhyOptions) fetch(ctx context.Context) (*Document, error) {
	base := o.Address
	if base == "" {
		base = "http://localhost:8080"
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	address, err := url.JoinPath(base, "debug/kopf.json")
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", o.Address, err)
	}
	client := o.Client
	if client == nil {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
		defer transport.CloseIdleConnections()
		client = &http.Client{Timeout: 10 * time.Second, Transport: transport}
	}
	params := url.Values{"kind": {o.Kind}, "namespace": {o.Namespace}, "name": {o.Name}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"?"+params.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", o.Address, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no operator answers: forward its port, as with kubectl port-forward, "+
			"and set Settings.Endpoints.Address in it: %w", err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", address, response.Status, decisions.Shorten(strings.TrimSpace(string(raw))))
	}
	document := new(Document)
	if err := json.Unmarshal(raw, document); err != nil {
		return nil, fmt.Errorf("%s is no operator's: %w", address, err)
	}
	return document, o.check(document)
}

// check says why there is nothing about an object.
func (o WhyOptions) check(d *Document) error {
	switch {
	case len(d.Objects) > 0:
		return nil
	case !d.Running:
		return errors.New("the operator does not run, or not yet")
	}
	var kinds []string
	for _, k := range d.Kinds {
		if (decisions.Object{Kind: k.Name}).Match(o.Kind, "", "", k.Kind) {
			return fmt.Errorf("the operator knows no %s %q: it is not there, or in a namespace that is not served", k.Name, o.Name)
		}
		kinds = append(kinds, k.Name)
	}
	return fmt.Errorf("the operator does not follow %q; it follows: %s", o.Kind, strings.Join(kinds, ", "))
}

// explain says it to people.
func explain(out *strings.Builder, a decisions.Account, d *Document) {
	line := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	line("%s", printable(a.Title()))
	line("  now: %s%s", a.State, spaced(nextText(a.Next, d.Time)))
	for _, running := range a.Running {
		line("  running: %s", running)
	}
	for _, v := range a.Waiting {
		line("  waiting: %s, after attempt %d%s", v.Handler, v.Attempt, spaced(nextText(v.Next, d.Time)))
	}
	for _, decision := range a.Decisions {
		line("")
		tellDecision(line, decision, d.Time)
	}
	if len(a.Decisions) == 0 {
		line("  decisions: none lately, or they were so long ago that they are forgotten")
	}
	for _, h := range otherHandlers(a, d) {
		line("  not asked lately: %s (%s)", h.ID, strings.Join(append([]string{h.Cause}, h.Filters...), ", "))
	}
}

func tellDecision(line func(string, ...any), d decisions.Decision, now time.Time) {
	head := fmt.Sprintf("  %s %s", d.Time.Local().Format(time.DateTime), d.Reason)
	if d.Repeated > 0 {
		head += fmt.Sprintf(", and %d times before", d.Repeated)
	}
	if len(d.Changed) > 0 {
		head += ", changed: " + strings.Join(d.Changed, " ")
	}
	line("%s", printable(head))
	for _, h := range d.Handlers {
		text := h.Handler + " " + h.Outcome
		if h.Attempt > 0 {
			text += fmt.Sprintf(", attempt %d", h.Attempt)
		}
		if h.Because != "" {
			text += ", for " + h.Because
		}
		if h.Error != "" {
			text += ": " + h.Error
		}
		line("    %s", printable(text+spaced(nextText(h.Next, d.Time))))
	}
	for _, w := range d.Writes {
		line("    wrote %s: %s", w.Endpoint, w.Outcome)
	}
	for _, note := range d.Notes {
		line("    %s", printable(note))
	}
	if d.Error != "" {
		line("    error: %s", printable(d.Error))
	}
	if d.Left > 0 {
		line("    and %d more, left out", d.Left)
	}
}

// otherHandlers are those of the object's kind that no decision is about.
func otherHandlers(a decisions.Account, d *Document) (others []decisions.Handler) {
	said := map[string]bool{}
	for _, decision := range a.Decisions {
		for _, h := range decision.Handlers {
			said[h.Handler] = true
		}
	}
	for _, k := range d.Kinds {
		for _, h := range k.Handlers {
			if k.Name == a.Kind && !said[h.ID] {
				others = append(others, h)
			}
		}
	}
	return others
}

func nextText(next *time.Time, from time.Time) string {
	if next == nil {
		return ""
	}
	if wait := next.Sub(from); wait > 0 {
		return fmt.Sprintf("(next in %s, at %s)", age(wait), next.Local().Format(time.TimeOnly))
	}
	return "(next at once)"
}

func spaced(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}

// printable keeps texts of others from steering the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '�'
		}
		return r
	}, text)
}
