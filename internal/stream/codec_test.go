package stream

import (
	"errors"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf/internal/body"
)

// WCH-1: what a list leaves out is put in, whatever the item looks like.
func TestComplete(t *testing.T) {
	kind := metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	for item, want := range map[string]string{
		`{"metadata":{"name":"a"}}`:                      `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`,
		" {\n \"metadata\": {}}":                         `{"apiVersion":"v1","kind":"Pod","metadata": {}}`,
		`{}`:                                             `{"apiVersion":"v1","kind":"Pod"}`,
		`{"kind":"Job","metadata":{}}`:                   `{"apiVersion":"v1","kind":"Job","metadata":{}}`,
		`{"metadata":{},"apiVersion":"v2"}`:              `{"kind":"Pod","metadata":{},"apiVersion":"v2"}`,
		`{"metadata":{},"kind":"Job","apiVersion":"v2"}`: `{"metadata":{},"kind":"Job","apiVersion":"v2"}`,
		`7`: `7`,
	} {
		in := []byte(item)
		out := complete(in, kind)
		if &out[0] == &in[0] {
			t.Errorf("%s keeps its list in memory", item)
		}
		if got := string(out); got != want {
			t.Errorf("%s\n got %s\nwant %s", item, got, want)
		}
	}
}

func TestDecodePage(t *testing.T) {
	p, err := objectCodec{}.decodePage([]byte(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}},null,{"metadata":{"name":"b","labels":[]}}],"metadata":{"resourceVersion":"7","continue":"c"}}`), metav1.TypeMeta{})
	if err != nil || p.ResourceVersion != "7" || p.Continue != "c" || len(p.Items) != 3 {
		t.Fatalf("got %v, %v", p, err)
	}
	if b, ok := p.Items[0].(*body.Body); !ok || b.Kind != "Pod" || b.APIVersion != "v1" {
		t.Errorf("got %v", p.Items[0])
	}
	if m, ok := p.Items[1].(*marked); !ok || m.err == nil {
		t.Errorf("got %v", p.Items[1])
	}
	if m, ok := p.Items[2].(*marked); !ok || m.Name != "b" || m.err == nil {
		t.Errorf("got %v", p.Items[2])
	}
	for raw, items := range map[string]int{
		`{"kind":"PodList","items":null}`: 0,
		`{"kind":"PodList","items":[]}`:   0,
		`{"kind":"Pod"}`:                  -1,
		`{"kind":"PodList","items":{}}`:   -1,
		`{"kind":"PodList","items":[`:     -1,
		`[]`:                              -1,
		``:                                -1,
	} {
		p, err := objectCodec{}.decodePage([]byte(raw), metav1.TypeMeta{})
		if (err != nil) != (items < 0) || err == nil && len(p.Items) != items {
			t.Errorf("%s: got %v, %v", raw, p, err)
		}
	}
}

// The errors of the end of a stream are those that client-go compares with.
func TestFrames(t *testing.T) {
	for stream, want := range map[string]error{
		`{"a":1} {"b":2}`:          io.EOF,
		`{"a":1} {"b":2} {`:        io.ErrUnexpectedEOF,
		"{\"a\":1}\n\n{\"b\":2}\n": io.EOF,
	} {
		r := framer{}.NewFrameReader(io.NopCloser(strings.NewReader(stream)))
		var got []string
		frame, buffer := "", make([]byte, 3)
		for {
			n, err := r.Read(buffer)
			frame += string(buffer[:n])
			if errors.Is(err, io.ErrShortBuffer) {
				continue
			}
			if err != nil {
				if err != want {
					t.Errorf("%q: got %v", stream, err)
				}
				break
			}
			got, frame = append(got, frame), ""
		}
		if len(got) != 2 || got[0] != `{"a":1}` || got[1] != `{"b":2}` {
			t.Errorf("%q: got %q", stream, got)
		}
	}
}
