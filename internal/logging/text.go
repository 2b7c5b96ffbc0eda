package logging

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// textHandler writes lines such as
//
//	12:30:01.250 INFO  [team/blue] handler succeeded handler=provision attempt=1
//
// with another beginning in the formats plain and full.
type textHandler struct {
	out     *output
	options *Options
	object  string
	attrs   string // rendered, each with a space before it
	group   string // prefix of keys
}

type output struct {
	mu sync.Mutex
	w  io.Writer
}

func (h *textHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.options.Level
}

func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	tail := &textHandler{options: h.options, object: h.object, attrs: h.attrs, group: h.group}
	r.Attrs(func(a slog.Attr) bool {
		tail.add(a, tail.group)
		return true
	})
	h.options.head(&line, r, tail.object)
	if tail.object != "" && h.options.Prefix != PrefixOff {
		line.WriteString("[" + tail.object + "] ")
	}
	line.WriteString(r.Message)
	if tail.object != "" && h.options.Prefix == PrefixOff {
		line.WriteString(" " + h.options.RefKey + "=" + readable(slog.StringValue(tail.object)))
	}
	line.WriteString(tail.attrs)
	line.WriteByte('\n')
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := io.WriteString(h.out.w, line.String())
	return err
}

func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	for _, a := range attrs {
		out.add(a, out.group)
	}
	return &out
}

func (h *textHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	out := *h
	out.group += name + "."
	return &out
}

func (h *textHandler) add(a slog.Attr, prefix string) {
	value := a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
	case value.Kind() == slog.KindGroup:
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			h.add(member, prefix)
		}
	case a.Key == ObjectKey && prefix == "":
		h.object = value.String()
	default:
		h.attrs += " " + prefix + a.Key + "=" + readable(value)
	}
}

func readable(v slog.Value) string {
	text := v.String()
	switch v.Kind() {
	case slog.KindTime:
		text = v.Time().Format(time.RFC3339)
	case slog.KindDuration:
		text = v.Duration().Round(time.Millisecond).String()
		if d := v.Duration(); d != 0 && d < time.Millisecond {
			text = d.String()
		}
	}
	if text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return r == '"' || r == '=' || r == ' ' || r == utf8.RuneError || !unicode.IsPrint(r)
	}) {
		return strconv.Quote(text)
	}
	return text
}
