package state

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/internal/rawjson"
)

// What is too large is kept in other forms (B24): JSON objects, too, so that Kopf can
// read them, and sees an object that has changed.
const (
	gzipMember    = kopfPrefix + "/gzip"    // the text, compressed, as base64
	digestMember  = kopfPrefix + "/digest"  // that of the whole
	digestsMember = kopfPrefix + "/digests" // by top-level field
)

const (
	// maxUnpacked limits what a compressed text may unpack to. No object is that large:
	// etcd takes 1.5 MiB, and the API server 3 MiB in a request.
	maxUnpacked = 16 << 20
	// maxAnnotations is what Kubernetes lets all annotations of an object have together.
	maxAnnotations = apivalidation.TotalAnnotationSizeLimitB
	// headroom is what a large last-handled state leaves of it to the records of the next
	// change, and to others. A small one leaves as much as it takes itself.
	headroom = 16 << 10
)

// packed returns the essence in the form in which it is kept: as it is, if it is not
// over the limit, else compressed, if that helps; or digests, if only they are known or
// nothing helps.
func (e *Essence) packed(limit int) string {
	form := isForm(string(e.text)) // for itself, which must not be taken for one
	switch {
	case !e.Complete():
		return e.digests()
	case len(e.text) <= limit && !form:
		return string(e.text)
	}
	packed := compressed(e.text)
	switch {
	case len(packed) > maxAnnotations: // no storage has so much room
		return e.digests()
	case len(packed) >= len(e.text) && !form:
		return string(e.text)
	}
	return packed
}

// digests returns the smallest form: what has changed can be told from it, but not how.
func (e *Essence) digests() string {
	text, _ := json.Marshal(map[string]any{ // maps of texts: cannot fail
		digestMember: e.Digest(), digestsMember: e.fieldDigests(),
	})
	return string(text)
}

func compressed(text []byte) string {
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_, _ = w.Write(text) // to memory: cannot fail
	_ = w.Close()
	return `{"` + gzipMember + `":"` + base64.StdEncoding.EncodeToString(buffer.Bytes()) + `"}`
}

// isForm tells whether a text is an essence in another form.
func isForm(text string) bool {
	if !strings.Contains(text, gzipMember) && !strings.Contains(text, digestsMember) {
		return false
	}
	for w := (rawjson.Walker{Src: []byte(text)}); w.Member(); w.Skip() {
		switch string(rawjson.Unescape(w.Name)) {
		case gzipMember, digestMember, digestsMember:
		default:
			return false
		}
	}
	return true
}

// unpacked reads what packed has written, and what Kopf has.
func unpacked(text string) (*Essence, error) {
	raw, err := checked([]byte(text))
	if err != nil {
		return nil, err
	}
	if !isForm(text) {
		w := rawjson.Walker{Src: raw}
		return &Essence{text: w.Copy(make([]byte, 0, len(raw)))}, nil
	}
	var form struct {
		Gzip    []byte            `json:"kopf.zalando.org/gzip"`
		Digest  string            `json:"kopf.zalando.org/digest"`
		Digests map[string]string `json:"kopf.zalando.org/digests"`
	}
	if err := json.Unmarshal(raw, &form); err != nil {
		return nil, err
	}
	if form.Gzip == nil {
		if form.Digests == nil {
			return nil, errors.New("it has no digests")
		}
		return &Essence{fields: form.Digests, digest: form.Digest}, nil
	}
	if raw, err = decompressed(form.Gzip); err != nil {
		return nil, err
	}
	if raw, err = checked(raw); err != nil {
		return nil, err
	}
	w := rawjson.Walker{Src: raw}
	return &Essence{text: w.Copy(make([]byte, 0, len(raw)))}, nil
}

func decompressed(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxUnpacked {
		return nil, fmt.Errorf("it unpacks to more than %d bytes", maxUnpacked)
	}
	return text, nil
}

// checked returns the text if a walker can rely on it.
func checked(raw []byte) ([]byte, error) {
	switch {
	case !rawjson.IsObject(raw):
		return nil, errors.New("not a JSON object")
	case !rawjson.Valid(raw):
		return nil, errors.New("not valid JSON")
	}
	return raw, nil
}

// decode reads a text from an object. exposed tells whether there were sensitive
// values in it; they are not in the essence.
func (s *Store) decode(b *body.Body, text string) (e *Essence, exposed bool, err error) {
	e, err = unpacked(text)
	if err != nil || s.rules == nil || !e.Complete() {
		return e, false, err
	}
	var filtered []byte
	filtered, exposed = s.rules.apply(make([]byte, 0, len(e.text)), e.text, b.UID, true)
	return &Essence{text: filtered}, exposed, nil
}

// Oversize returns how large all annotations of the object together will be, keys
// and values, when the changes are made, and whether that is over what Kubernetes
// accepts (256 KiB): the API server would refuse the whole patch (X26).
func Oversize(b *body.Body, changes map[string]*string) (size int, over bool) {
	for name, value := range b.Annotations {
		if _, changed := changes[name]; !changed {
			size += len(name) + len(value)
		}
	}
	for name, value := range changes {
		if value != nil {
			size += len(name) + len(*value)
		}
	}
	return size, size > maxAnnotations
}

// maxMessage is how long a handler's error may be in a record, in bytes. It is there
// to be read by people; the whole of it is in the log.
const maxMessage = 1 << 10

// shortened cuts a message between characters.
func shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(message[:maxMessage-len(ellipsis)], "") + ellipsis
}
