package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// What names of webhooks may be long: the whole, and what is between two dots.
const (
	maxName  = 253
	maxLabel = 63
	maxOwner = 120 // of the name that they all end with
)

// names gives each id a legal name of its own.
type names struct {
	suffix string // what all names end with
	taken  map[string]bool
}

// newNames are those that end with the name of the configuration. A webhook's name
// needs three labels, so a configuration without a dot in its name gets one more.
func newNames(owner string) *names {
	suffix := legalName(owner, maxOwner)
	if !strings.Contains(suffix, ".") {
		suffix += ".webhooks"
	}
	return &names{suffix: "." + suffix, taken: make(map[string]bool)}
}

// of returns the name of the id, and what of it is not the common ending. It is never
// the same twice.
func (n *names) of(id string) (name, own string) {
	room := maxName - len(n.suffix)
	own = legalName(id, room)
	for i := 1; n.taken[own]; i++ {
		own = shortened(legalName(id, room), fmt.Sprintf("%s\x00%d", id, i), room)
	}
	n.taken[own] = true
	return own + n.suffix, own
}

// legalName makes any text a DNS name of at most so many bytes, as Kopf does it, but
// in lower case (ADM-17). One that is changed only so that it is legal need not be the
// only one of that name.
func legalName(text string, room int) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '/', c == '.':
			b.WriteByte('.')
		case c == '_', c == '-':
			b.WriteByte('-')
		case 'A' <= c && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%02x", c)
		}
	}
	var labels []string
	for label := range strings.SplitSeq(b.String(), ".") {
		if label = strings.Trim(label, "-"); len(label) > maxLabel {
			label = shortened(label, label, maxLabel)
		}
		if label != "" {
			labels = append(labels, label)
		}
	}
	name := strings.Join(labels, ".")
	switch {
	case name == "":
		return digest(text)
	case len(name) > room:
		return shortened(name, text, room)
	}
	return name
}

// shortened ends with a digest of the whole in place of what does not fit.
func shortened(name, whole string, room int) string {
	ending := "-" + digest(whole)
	name = name[:min(len(name), room-len(ending))]
	// The digest goes into the last label, which must not become too long.
	if last := len(name) - strings.LastIndexByte(name, '.') - 1; last+len(ending) > maxLabel {
		name = name[:len(name)-(last+len(ending)-maxLabel)]
	}
	if name = strings.TrimRight(name, "-."); name == "" {
		return ending[1:]
	}
	return name + ending
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}
