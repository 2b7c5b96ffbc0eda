package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"unicode/utf8"
)

// printed is how much of a value is printed, in bytes.
const printed = 100

// String returns the path in dotted form. Keys that would be ambiguous in it, for
// they are empty or hold anything but letters, digits, "-", "_", "/" and "$", are
// bracketed and quoted: metadata.annotations["example.com/x"]. The root is ".".
func (p Path) String() string {
	if len(p) == 0 {
		return "."
	}
	var text []byte
	for i, key := range p {
		switch {
		case !plain(key):
			text = append(strconv.AppendQuote(append(text, '['), key), ']')
		case i == 0:
			text = append(text, key...)
		default:
			text = append(append(text, '.'), key...)
		}
	}
	return string(text)
}

// LogValue logs the path as String prints it.
func (p Path) LogValue() slog.Value { return slog.StringValue(p.String()) }

func plain(key string) bool {
	for _, c := range []byte(key) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '-', c == '_', c == '/', c == '$', c >= utf8.RuneSelf:
		default:
			return false
		}
	}
	return key != "" && utf8.ValidString(key)
}

// String returns the change in one line, values as JSON, those longer than 100
// bytes cut: "add spec.paused: true", "change spec.replicas: 1 -> 3", "remove
// spec.paused: true".
func (i Item) String() string {
	switch i.Op {
	case Add:
		return fmt.Sprintf("add %s: %s", i.Path, printable(i.New))
	case Remove:
		return fmt.Sprintf("remove %s: %s", i.Path, printable(i.Old))
	}
	return fmt.Sprintf("%s %s: %s -> %s", i.Op, i.Path, printable(i.Old), printable(i.New))
}

// LogValue logs the change as the group op, path, old, new, the values cut as in
// String and left out where there is none.
func (i Item) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("op", string(i.Op)), slog.String("path", i.Path.String())}
	if i.Op != Add {
		attrs = append(attrs, slog.String("old", printable(i.Old)))
	}
	if i.Op != Remove {
		attrs = append(attrs, slog.String("new", printable(i.New)))
	}
	return slog.GroupValue(attrs...)
}

// String returns the changes line by line, without a line break at the end.
func (d Diff) String() string { return d.join("\n") }

// LogValue logs the changes in one line, separated by semicolons. The text is
// made only if the record is written.
func (d Diff) LogValue() slog.Value { return slog.StringValue(d.join("; ")) }

func (d Diff) join(separator string) string {
	lines := make([]string, len(d))
	for i, item := range d {
		lines[i] = item.String()
	}
	return strings.Join(lines, separator)
}

func printable(v any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil { // not a JSON value, such as NaN
		text.Reset()
		fmt.Fprintf(&text, "%v", v)
	}
	line := strings.TrimSuffix(text.String(), "\n")
	if len(line) <= printed {
		return line
	}
	end := printed
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end] + "…"
}
