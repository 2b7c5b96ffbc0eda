package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kopf-go/kopf/filters"
	"github.com/kopf-go/kopf/internal/registry"
)

// listed is a handler as it is printed.
type listed struct {
	Kind     string            `json:"kind"`
	ID       string            `json:"id"`
	Resource string            `json:"resource,omitempty"`
	Filters  []filter          `json:"filters,omitempty"`
	Options  map[string]string `json:"options,omitempty"`
	Source   string            `json:"source"`

	options []string // in order, for people
}

// filter is one condition for the objects of a handler.
type filter struct {
	On    string `json:"on"`              // label, annotation, field, value, old, new, when, …
	Key   string `json:"key,omitempty"`   // of a label or annotation
	Match string `json:"match,omitempty"` // like the Go expression that makes it
}

func (f filter) String() string {
	text := f.On
	if f.Key != "" {
		text += " " + f.Key
	}
	if f.Match != "" {
		text += "=" + f.Match
	}
	return text
}

func (c *commands) handlersCommand() *cobra.Command {
	output := "table"
	cmd := c.command("handlers", "List the handlers, with the resources and filters that they are for", func(_ context.Context, out io.Writer, _ Invocation) error {
		found, err := c.Handlers()
		if err != nil {
			return err
		}
		all := make([]listed, len(found))
		for i, h := range found {
			all[i] = list(h)
		}
		return printHandlers(out, output, all)
	})
	s := c.section(cmd, "Handlers", envHandlers)
	s.output(&output, "table", "wide", "json", "yaml")
	s.add(cmd)
	return cmd
}

func printHandlers(out io.Writer, format string, all []listed) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	case "yaml":
		text, err := yaml.Marshal(all)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(kind, id, resource, conditions, options, source string) {
		cells := []string{kind, id, resource, conditions, options, source}
		if format != "wide" {
			cells = slices.Delete(cells, 4, 5)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	row("KIND", "ID", "RESOURCE", "FILTERS", "OPTIONS", "SOURCE")
	for _, h := range all {
		var conditions []string
		for _, f := range h.Filters {
			conditions = append(conditions, f.String())
		}
		row(h.Kind, h.ID, orNone(h.Resource), orNone(strings.Join(conditions, ", ")), orNone(strings.Join(h.options, ", ")), h.Source)
	}
	return table.Flush()
}

func orNone(text string) string { return cmp.Or(text, "-") }

// list describes a handler.
func list(h *registry.Handler) listed {
	l := listed{Kind: string(h.Kind), ID: h.ID, Resource: h.Selector.String(), Filters: conditions(h), Source: h.Source, Options: map[string]string{}}
	option := func(given bool, name string, value any) {
		if !given {
			return
		}
		text := fmt.Sprint(value)
		l.Options[name] = text
		if text == "true" {
			l.options = append(l.options, name)
		} else {
			l.options = append(l.options, name+"="+text)
		}
	}
	lasting := func(d time.Duration, name string) { option(d > 0, name, short(d)) }
	option(h.Retries >= 0, "retries", h.Retries)
	lasting(h.Timeout, "timeout")
	option(h.Backoff >= 0, "backoff", short(h.Backoff))
	option(h.Errors != registry.ErrorsUnset, "errors", modes[h.Errors])
	option(h.Deleted, "deleted", true)
	option(h.Optional, "optional", true)
	option(h.Param != nil, "param", fmt.Sprintf("%T", h.Param)) // its value may be a secret
	option(len(h.Handles) > 0, "uses", plural(len(h.Handles), "index", "indices"))
	option(len(h.Sensitive) > 0, "sensitive", paths(h.Sensitive))
	option(h.Spawn != nil, "initial-delay", true)
	option(h.Finalize, "finalize", true)
	lasting(h.Cancellation.Backoff, "cancellation-backoff")
	lasting(h.Cancellation.Timeout, "cancellation-timeout")
	lasting(h.Cancellation.Polling, "cancellation-polling")
	lasting(h.Schedule.Interval, "interval")
	option(h.Schedule.Sharp, "sharp", true)
	lasting(h.Schedule.Idle, "idle")
	option(h.Schedule.Cron != nil, "cron", h.Schedule.Cron)
	option(h.Kind == registry.Timer && h.Jitter >= 0, "jitter", short(h.Jitter))
	option(h.Persistent, "persistent", true)
	option(h.SideEffects, "side-effects", true)
	option(h.IgnoreFailures, "ignore-failures", true)
	return l
}

var modes = map[registry.ErrorMode]string{
	registry.ErrorsIgnored: "ignored", registry.ErrorsTemporary: "temporary", registry.ErrorsPermanent: "permanent",
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func paths[P fmt.Stringer](all []P) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, " ")
}

// conditions are the filters of a handler, in the order in which they are asked.
func conditions(h *registry.Handler) (all []filter) {
	for _, c := range h.Labels {
		all = append(all, filter{On: "label", Key: c.Key, Match: matched(c.Match)})
	}
	for _, c := range h.Annotations {
		all = append(all, filter{On: "annotation", Key: c.Key, Match: matched(c.Match)})
	}
	if len(h.Field) > 0 {
		all = append(all, filter{On: "field", Match: h.Field.String()})
	}
	for _, c := range []struct {
		on    string
		match filters.Criterion
	}{{"value", h.Value}, {"old", h.Old}, {"new", h.New}} {
		if c.match != nil {
			all = append(all, filter{On: c.on, Match: matched(c.match)})
		}
	}
	if len(h.Operations) > 0 {
		all = append(all, filter{On: "operations", Match: strings.Join(slices.Sorted(slices.Values(h.Operations)), " ")})
	}
	if h.Subresource != "" {
		all = append(all, filter{On: "subresource", Match: h.Subresource})
	}
	if h.Rule.Expression != "" {
		all = append(all, filter{On: "rule", Match: h.Rule.Expression})
	}
	if h.When != nil {
		all = append(all, filter{On: "when"})
	}
	return all
}

func matched(c filters.Criterion) string {
	if c == nil {
		return ""
	}
	return c.String()
}
