package webhook

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// literalOf is a value in CEL; false: there is no way to write it so that equality means
// the same as in filters.
func literalOf(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return literal(value), utf8.ValidString(value)
	case bool:
		return strconv.FormatBool(value), true
	case json.Number:
		n, err := strconv.ParseInt(value.String(), 10, 64)
		return strconv.FormatInt(n, 10), err == nil
	case int:
		return strconv.Itoa(value), true
	case int32:
		return strconv.FormatInt(int64(value), 10), true
	case int64:
		return strconv.FormatInt(value, 10), true
	}
	return "", false
}

// literal is a text in CEL.
func literal(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// identifier tells whether a field can be selected by its name as it is.
func identifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && !reserved[name]
}

// reserved is what CEL's grammar keeps for itself.
var reserved = map[string]bool{
	"true": true, "false": true, "null": true, "in": true, "as": true, "break": true, "const": true,
	"continue": true, "else": true, "for": true, "function": true, "if": true, "import": true, "let": true,
	"loop": true, "package": true, "namespace": true, "return": true, "var": true, "void": true, "while": true,
}
