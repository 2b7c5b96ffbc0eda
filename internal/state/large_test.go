package state

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kopf-go/kopf/internal/body"
)

// noise is text that compresses to five sixths, as base64.
func noise(size int) string {
	r := rand.New(rand.NewPCG(1, 2))
	const letters = "abcdefghijklmnopqrstuvwxyz012345"
	text := make([]byte, size)
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}

func big(t testing.TB, blob, note string) *body.Body {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"kind": "Widget", "metadata": map[string]any{"name": "w", "uid": "u-1", "annotations": map[string]string{"note": note}},
		"spec": map[string]any{"blob": blob, "size": 1}, "data": "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(raw))
}

// B24: in which form a state is kept, with what others have on the object.
func TestLargeStates_B24(t *testing.T) {
	s := storeWith(Default(), nil)
	for _, c := range []struct {
		name       string
		blob, note int
		noise      bool
		want       string
	}{
		{"small", 100, 100, false, `{"data":`},
		{"just below the limit", 65_000, 0, true, `{"`},
		{"compressible", 900_000, 0, false, `{"kopf.zalando.org/gzip":"`},
		{"hardly compressible", 200 << 10, 0, true, `{"kopf.zalando.org/gzip":"`},
		{"others use a lot", 200 << 10, 100 << 10, true, `{"kopf.zalando.org/digest":"`},
		{"incompressible", 900 << 10, 0, true, `{"kopf.zalando.org/digest":"`},
		{"others use nearly all", 200, 254 << 10, true, `{"kopf.zalando.org/gzip":"`},
		{"others use it for what does not compress", 30_000, 244 << 10, true, `{"kopf.zalando.org/digest":"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			blob := strings.Repeat("x", c.blob)
			if c.noise {
				blob = noise(c.blob)
			}
			b := big(t, blob, strings.Repeat("n", c.note))
			changes := annotationsOf(handledChanges(s, b))
			text := *changes[configuration]
			if !strings.HasPrefix(text, c.want) {
				t.Errorf("got %.80s", text)
			}
			if size, over := Oversize(b, changes); over {
				t.Errorf("%d bytes are not accepted", size)
			}
			after := withAnnotations(t, b, changes)
			if after.Annotations["note"] != b.Annotations["note"] {
				t.Error("the user's annotation was touched")
			}
			same, known, err := s.Handled(after)
			if !same || !known || err != nil {
				t.Error("does not count as handled:", same, known, err) // once per change
			}
			if changes := annotationsOf(handledChanges(s, after)); changes != nil {
				t.Errorf("what is there is written again: %.200v", spelled(changes))
			}
			last, known, err := s.LastHandled(after)
			now := s.Essence(after)
			if err != nil || !known || !last.Equal(now) || !now.Equal(last) || last.Digest() != now.Digest() || len(last.Changed(now)) != 0 {
				t.Errorf("is not equal: %v, %v", known, err)
			}
			complete := !strings.Contains(c.want, "digest")
			if last.Complete() != complete {
				t.Errorf("complete is %v", last.Complete())
			}
			if tree, err := last.Tree(); complete && (err != nil || len(tree) == 0) || !complete && (!errors.Is(err, ErrIncomplete) || len(tree) != 0) {
				t.Errorf("the tree is %.100v, %v", tree, err)
			}
			edited := parse(t, strings.Replace(string(after.Raw()), `"size":1`, `"size":2`, 1))
			if same, known, err := s.Handled(edited); same || !known || err != nil {
				t.Error("a change is not seen:", same, known, err)
			}
			if got := last.Changed(s.Essence(edited)); !slices.Equal(got, []string{"spec"}) {
				t.Errorf("changed: %q", got)
			}
			if !complete && last.Bytes() != nil {
				t.Error("it has bytes")
			}
		})
	}
}

func TestChangedFields_B24(t *testing.T) {
	e := func(text string) *Essence { return &Essence{text: []byte(text)} }
	digests := func(text string) *Essence {
		d, err := unpacked(e(text).digests())
		if err != nil || d.Complete() {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		a, b string
		want []string
	}{
		{`{}`, `{}`, nil},
		{`{"spec":1,"data":2}`, `{"data":2.0,"spec":1}`, nil},
		{`{"spec":1,"x":null}`, `{"spec":1}`, nil},
		{`{"spec":1,"data":2}`, `{"spec":2,"data":2}`, []string{"spec"}},
		{`{"spec":1,"data":2}`, `{"spec":1,"metadata":{}}`, []string{"data", "metadata"}},
		{`{"z":1,"a":1}`, `{}`, []string{"a", "z"}},
		{`{"a":1,"a":2}`, `{"a":2}`, nil},
		{`{"a":1,"a":null}`, `{}`, nil},
	} {
		for i, pair := range [][2]*Essence{{e(c.a), e(c.b)}, {digests(c.a), e(c.b)}, {e(c.a), digests(c.b)}, {digests(c.a), digests(c.b)}, {e(c.b), e(c.a)}} {
			if got := pair[0].Changed(pair[1]); !slices.Equal(got, c.want) {
				t.Errorf("%s, %s (%d): got %q", c.a, c.b, i, got)
			}
			if pair[0].Equal(pair[1]) != (c.want == nil) {
				t.Errorf("%s, %s (%d): equality is wrong", c.a, c.b, i)
			}
		}
	}
	var none *Essence
	if got := none.Changed(e(`{"a":1}`)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q", got)
	}
}

// B24: the last-handled state makes room for records, before the API server refuses them.
func TestRecordsComeBeforeTheOldState_B24(t *testing.T) {
	s := storeWith(Default(), nil)
	b := big(t, noise(60_000), strings.Repeat("n", 180<<10))
	b = withAnnotations(t, b, annotationsOf(handledChanges(s, b)))
	b = big2(t, b, strings.Repeat("n", maxAnnotations-len(b.Annotations[configuration])-200)) // somebody uses what was left
	c := s.Changes(b)
	c.StoreRecord(s.Key("f"), Record{Message: strings.Repeat("m", 500)})
	changes := annotationsOf(c)
	if size, over := Oversize(b, changes); over {
		t.Errorf("%d bytes are not accepted", size)
	}
	after := withAnnotations(t, b, changes)
	if records, err := s.Records(after, s.Key("f")); err != nil || len(records) != 1 {
		t.Error(records, err)
	}
	if last, known, err := s.LastHandled(after); err != nil || !known || last.Complete() || !last.Equal(s.Essence(after)) {
		t.Error("the old state is not kept as digests:", known, err)
	}
}

// big2 changes the note, which changes the essence, and pretends that this was handled.
func big2(t testing.TB, b *body.Body, note string) *body.Body {
	t.Helper()
	without := withAnnotations(t, b, map[string]*string{"note": &note, configuration: nil})
	text := string(storeWith(Default(), nil).Essence(without).Bytes())
	if len(text) > 2*maxAnnotations {
		t.Fatal("too large")
	}
	compressed := compressed([]byte(text))
	return withAnnotations(t, without, map[string]*string{configuration: &compressed})
}

// X26: the last resort: there is room for nothing, and Oversize says so.
func TestNothingFits_X26(t *testing.T) {
	b := big(t, "x", strings.Repeat("n", maxAnnotations-10))
	changes := annotationsOf(handledChanges(storeWith(Default(), nil), b))
	if _, over := Oversize(b, changes); !over || !strings.HasPrefix(*changes[configuration], `{"kopf.zalando.org/digest"`) {
		t.Errorf("got %.300v", spelled(changes))
	}
}

// B24: nobody fills our memory with an annotation.
func TestABombIsNotUnpacked_B24(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range maxUnpacked/4096 + 1 {
		if _, err := w.Write(make([]byte, 4096)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	bomb := `{"kopf.zalando.org/gzip":"` + base64.StdEncoding.EncodeToString(packed.Bytes()) + `"}`
	if len(bomb) > 64<<10 {
		t.Fatal("it does not fit into an annotation")
	}
	_, _, err := storeWith(Default(), nil).LastHandled(objectWith(map[string]string{configuration: bomb}))
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "more than 16777216 bytes") || !strings.Contains(err.Error(), configuration) {
		t.Errorf("got %v", err)
	}
}

func TestCorruptForms_B24(t *testing.T) {
	for _, text := range []string{
		`{"kopf.zalando.org/gzip":"!"}`, `{"kopf.zalando.org/gzip":"eA=="}`, `{"kopf.zalando.org/gzip":7}`, `{"kopf.zalando.org/gzip":null}`,
		`{"kopf.zalando.org/digests":"x"}`, `{"kopf.zalando.org/digests":{"spec":7}}`, compressed([]byte(`[]`)), compressed([]byte(`{`)),
	} {
		b := objectWith(map[string]string{configuration: text})
		var corrupt *CorruptError
		if _, _, err := storeWith(Default(), nil).LastHandled(b); !errors.As(err, &corrupt) {
			t.Errorf("%s: got %v", text, err)
		}
		if _, _, err := storeWith(Default(), nil).Handled(b); !errors.As(err, &corrupt) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// Objects whose fields have the names of the forms are none.
func TestFieldsNamedLikeForms_B24(t *testing.T) {
	s := storeWith(Default(), nil)
	for _, raw := range []string{
		`{"kopf.zalando.org/gzip":"eA==","metadata":{"uid":"u"}}`,
		`{"kopf.zalando.org/digests":{},"kopf.zalando.org/digest":"","metadata":{"uid":"u"}}`,
		`{"kopf.zalando.org/gzip":"eA==","spec":1,"metadata":{"uid":"u"}}`,
		`{"spec":{"kopf.zalando.org/gzip":"eA=="},"metadata":{"uid":"u"}}`,
	} {
		b := parse(t, raw)
		b = withAnnotations(t, b, annotationsOf(handledChanges(s, b)))
		if same, known, err := s.Handled(b); !same || !known || err != nil {
			t.Errorf("%s: %v, %v, %v", b.Raw(), same, known, err)
		}
		if last, _, err := s.LastHandled(b); err != nil || !last.Equal(s.Essence(b)) {
			t.Errorf("%s: %v", b.Raw(), err)
		}
	}
}

func TestMessagesAreCut(t *testing.T) {
	s := storeWith(Default(), nil)
	for message, want := range map[string]int{
		strings.Repeat("m", 1024): 1024, strings.Repeat("m", 1025): 1024, strings.Repeat("ü", 10_000): 1023, strings.Repeat("日", 10_000): 1023, "short": 5,
	} {
		c := s.Changes(objectWith(nil))
		c.StoreRecord(s.Key("f"), Record{Message: message})
		after := withAnnotations(t, objectWith(nil), annotationsOf(c))
		records, err := s.Records(after, s.Key("f"))
		got := records["f"].Message
		if err != nil || len(got) != want || !utf8.ValidString(got) || len(message) > maxMessage && !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes become %d: %.20q, %v", len(message), len(got), got, err)
		}
		c = s.Changes(after) // and is not written again
		c.StoreRecord(s.Key("f"), Record{Message: message})
		if changes := annotationsOf(c); changes != nil {
			t.Errorf("written again: %.100v", spelled(changes))
		}
	}
}

func TestRecordLimit_B24(t *testing.T) {
	s := newStoreOf(t, Config{RecordLimit: 10})
	b := big(t, strings.Repeat("x", 500), "")
	after := withAnnotations(t, b, annotationsOf(handledChanges(s, b)))
	if !strings.Contains(after.Annotations[configuration], "gzip") {
		t.Error(after.Annotations)
	}
	if same, _, err := storeWith(Default(), nil).Handled(after); !same || err != nil {
		t.Error("the limit matters for reading")
	}
	b = objectWith(nil) // so small that it would only grow
	if text := *annotationsOf(handledChanges(s, b))[configuration]; strings.Contains(text, "gzip") {
		t.Error(text)
	}
	if _, err := NewStore(Config{Naming: Default(), RecordLimit: -1}); err == nil {
		t.Error("no error for a negative limit")
	}
}

func FuzzForms_B24(f *testing.F) {
	f.Add(`{"spec":{"a":1}}`, false)
	f.Add(`{"kopf.zalando.org/gzip":"H4sIAAAAAAACA6uuBQBDv6ajAgAAAA=="}`, true)
	f.Add(`{"kopf.zalando.org/digest":"00","kopf.zalando.org/digests":{"spec":"00"}}`, true)
	f.Add(compressed([]byte(`{"spec":1,"spec":null}`)), true)
	f.Fuzz(func(t *testing.T, text string, asDigests bool) {
		e, err := unpacked(text)
		if err != nil {
			return
		}
		for _, form := range []string{e.packed(0), e.packed(1 << 20), e.digests()} {
			if !json.Valid([]byte(form)) {
				t.Fatalf("%q is kept as %q", text, form)
			}
			back, err := unpacked(form)
			if err != nil || !back.Equal(e) || !e.Equal(back) || back.Digest() != e.Digest() || len(back.Changed(e)) > 0 {
				t.Fatalf("%q is kept as %q: %v", text, form, err)
			}
			if back.Complete() != (e.Complete() && form != e.digests()) && len(form) <= maxAnnotations {
				t.Fatalf("%q is kept as %q: complete is %v", text, form, back.Complete())
			}
			if back.Complete() && !bytes.Equal(back.Bytes(), e.Bytes()) {
				t.Fatalf("%q is kept as %q and read as %q", text, form, back.Bytes())
			}
		}
	})
}
