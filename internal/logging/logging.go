// Package logging writes log records in the formats that the command line offers: lines
// for people, with the object first, then what happened, then the rest; and records for
// machines.
package logging

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// ObjectKey is the attribute that names the object of a record, by a Reference.
const ObjectKey = "object"

// Formats are the names of formats, the default one first.
var Formats = []string{"text", "plain", "full", "logfmt", "json"}

// Options say how records are written. The zero value is text from level info on.
type Options struct {
	Level slog.Level
	// Format is one of Formats, in whatever case.
	Format string
	// RefKey is the attribute by which the object is written where it is no prefix.
	// Default: object.
	RefKey string
	// Prefix tells whether the object goes before the message.
	Prefix Prefix
}

// Prefix tells whether the object goes before the message, as [namespace/name].
type Prefix int

// The zero value is: in the formats for people it does (LOG-2).
const (
	PrefixByFormat Prefix = iota
	PrefixOn
	PrefixOff
)

// Check tells whether the format is known.
func (o Options) Check() error {
	if o.Format != "" && !slices.Contains(Formats, strings.ToLower(o.Format)) {
		return fmt.Errorf("log format %q is not known: use one of %s", o.Format, strings.Join(Formats, ", "))
	}
	return nil
}

// New returns a logger that writes to w.
func New(w io.Writer, o Options) (*slog.Logger, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.Format = strings.ToLower(cmp.Or(o.Format, Formats[0]))
	o.RefKey = cmp.Or(o.RefKey, ObjectKey)
	options := &slog.HandlerOptions{Level: o.Level, ReplaceAttr: o.replace}
	switch o.Format {
	case "logfmt":
		return slog.New(o.prefixed(slog.NewTextHandler(w, options))), nil
	case "json":
		return slog.New(o.prefixed(slog.NewJSONHandler(w, options))), nil
	}
	return slog.New(&textHandler{out: &output{w: w}, options: &o}), nil
}

// replace gives attributes the names that they have in Kopf's JSON (LOG-1).
func (o *Options) replace(groups []string, a slog.Attr) slog.Attr {
	switch {
	case len(groups) > 0:
	case a.Key == ObjectKey:
		a.Key = o.RefKey
	case o.Format != "json":
	case a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime:
		return slog.String("timestamp", a.Value.Time().UTC().Format("2006-01-02T15:04:05.000000-07:00"))
	case a.Key == slog.LevelKey:
		if level, is := a.Value.Any().(slog.Level); is {
			return slog.String("severity", severity(level))
		}
	case a.Key == slog.MessageKey:
		a.Key = "message"
	}
	return a
}

// severity is a level as services that collect logs know it.
func severity(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warn"
	case level < slog.LevelError+4:
		return "error"
	}
	return "fatal"
}

// prefixed has the object before the message, too, if that is asked for.
func (o *Options) prefixed(h slog.Handler) slog.Handler {
	if o.Prefix != PrefixOn {
		return h
	}
	return prefixHandler{Handler: h}
}

// prefixHandler puts the object before the message.
type prefixHandler struct {
	slog.Handler
	object string
	inside bool // of a group, where attributes have other names
}

func (h prefixHandler) Handle(ctx context.Context, r slog.Record) error {
	object := h.object
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == ObjectKey && !h.inside {
			object = a.Value.Resolve().String()
		}
		return true
	})
	if object != "" {
		r.Message = "[" + object + "] " + r.Message
	}
	return h.Handler.Handle(ctx, r)
}

func (h prefixHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if i := slices.IndexFunc(attrs, func(a slog.Attr) bool { return a.Key == ObjectKey }); i >= 0 && !h.inside {
		h.object = attrs[i].Value.Resolve().String()
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h prefixHandler) WithGroup(name string) slog.Handler {
	h.Handler, h.inside = h.Handler.WithGroup(name), h.inside || name != ""
	return h
}

// head begins a line of one of the formats for people.
func (o *Options) head(line *strings.Builder, r slog.Record, object string) {
	switch o.Format {
	case "text":
		if !r.Time.IsZero() {
			line.WriteString(r.Time.Format("15:04:05.000 "))
		}
		fmt.Fprintf(line, "%-5s ", r.Level)
	case "full":
		name, level := "kopf", r.Level.String()
		if object != "" {
			name = "kopf.objects" // Kopf's name of the logger (LOG-4)
		}
		if r.Level == slog.LevelWarn {
			level = "WARNING"
		}
		if !r.Time.IsZero() {
			line.WriteString(r.Time.Format("[2006-01-02 15:04:05,000] "))
		}
		fmt.Fprintf(line, "%-20.20s [%-8.8s] ", name, level)
	}
}
