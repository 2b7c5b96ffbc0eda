package state

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
	"github.com/kopf-go/kopf/storage"
)

func essences(texts ...string) (all []*Essence) {
	for _, text := range texts {
		all = append(all, &Essence{text: []byte(text)})
	}
	return all
}

// PRG-7: what a finished handler has seen is known after a restart, and goes with the
// last record that names it.
func TestSeenStatesAreKept_PRG7(t *testing.T) {
	s := storeWith(Default(), nil)
	e := essences(`{"spec":{"a":1}}`, `{"spec":{"a":2}}`)
	f, g, h := s.Key("f"), s.Key("g"), s.Key("h")

	c := s.Changes(objectWith(nil))
	for _, k := range []*Keys{f, g} {
		c.StoreRecord(k, Record{Success: true, Digest: e[0].Digest()})
		c.StoreSeen(e[0])
	}
	b := withAnnotations(t, objectWith(nil), annotationsOf(c))
	name := "kopf.zalando.org/seen-" + e[0].Digest()
	if got := slices.Sorted(maps.Keys(b.Annotations)); !slices.Equal(got, []string{"kopf.zalando.org/f", "kopf.zalando.org/g", boundTo, name}) {
		t.Fatalf("got %q", got)
	}
	if seen, ok := s.Seen(b, e[0].Digest()); !ok || !seen.Equal(e[0]) || !seen.Complete() {
		t.Error("what was seen is not known")
	}
	if _, ok := s.Seen(b, e[1].Digest()); ok {
		t.Error("something else is")
	}
	if s.HasStray(b, f, g) || s.HasStray(b, f) != true || !s.HasStray(b) {
		t.Error("strays")
	}
	if same, _, _ := s.Handled(withAnnotations(t, b, annotationsOf(handledChanges(s, b)))); !same {
		t.Error("it counts as essence") // ESS-4
	}

	for _, step := range []struct {
		what string
		do   func(c *Changes)
		seen []int
	}{
		{"the same again", func(c *Changes) { c.StoreSeen(e[0]) }, []int{0}},
		{"another one is not done", func(c *Changes) { c.StoreRecord(h, Record{Retries: 1}) }, []int{0}},
		{"one of two records goes", func(c *Changes) { c.PurgeOthers(g) }, []int{0}},
		{"both", func(c *Changes) { c.PurgeOthers(h) }, nil},
		{"one moves on", func(c *Changes) {
			c.PurgeOthers(f, g)
			c.StoreRecord(g, Record{Success: true, Digest: e[1].Digest()})
			c.StoreSeen(e[1])
		}, []int{0, 1}},
		{"both move on", func(c *Changes) {
			for _, k := range []*Keys{f, g} {
				c.StoreRecord(k, Record{Success: true, Digest: e[1].Digest()})
			}
			c.StoreSeen(e[1])
			c.PurgeOthers(f, g)
		}, []int{1}},
		{"for nobody", func(c *Changes) { c.PurgeOthers(f); c.StoreSeen(e[1]) }, []int{0}},
		{"everything goes", func(c *Changes) { c.PurgeOthers() }, nil},
		{"of another object", func(c *Changes) { c.Disown() }, nil},
	} {
		c := s.Changes(b)
		step.do(c)
		after := withAnnotations(t, b, annotationsOf(c))
		for i := range e {
			if _, ok := s.Seen(after, e[i].Digest()); ok != slices.Contains(step.seen, i) {
				t.Errorf("%s: %d is known: %v; %q", step.what, i, ok, spelled(annotationsOf(c)))
			}
		}
	}
}

func TestSeenStatesAreChecked_PRG7(t *testing.T) {
	s := storeWith(Default(), nil)
	e := essences(`{"spec":{"a":1}}`)[0]
	name := "kopf.zalando.org/seen-" + e.Digest()
	for value, want := range map[string]bool{
		`{"spec":{"a":1.0}}`: true, `{"spec":{"a":2}}`: false, `{`: false, ``: false, `null`: false,
		compressed([]byte(`{"spec":{"a":1}}`)): true, e.digests(): true,
	} {
		if _, ok := s.Seen(objectWith(map[string]string{name: value}), e.Digest()); ok != want {
			t.Errorf("%s: known is %v", value, ok)
		}
	}
	if _, ok := s.Seen(objectWith(map[string]string{name: `{"spec":{"a":1}}`, boundTo: "u-0"}), e.Digest()); ok {
		t.Error("another object's is read") // B23
	}
	for _, digest := range []string{"", "uid", "../x"} {
		if _, ok := s.Seen(objectWith(map[string]string{"kopf.zalando.org/seen-": "{}"}), digest); ok {
			t.Errorf("%q is known", digest)
		}
	}
}

// T059: the copies of a Deployment's are neither read nor fought over.
func TestSeenStatesOfReplicaSets_T059(t *testing.T) {
	s := storeWith(Default(), nil)
	e := essences(`{"spec":{"a":1}}`)[0]
	b := parse(t, `{"kind":"ReplicaSet","metadata":{"uid":"rs","ownerReferences":[{"kind":"Deployment"}],"annotations":{
		"kopf.zalando.org/seen-`+e.Digest()+`":"{\"spec\":{\"a\":1}}"}}}`)
	if _, ok := s.Seen(b, e.Digest()); ok || s.HasStray(b) {
		t.Error("the Deployment's is looked at")
	}
	c := s.Changes(b)
	c.PurgeOthers()
	if changes := annotationsOf(c); changes != nil {
		t.Errorf("got %q", spelled(changes))
	}
	c = s.Changes(b)
	c.StoreRecord(s.Key("f"), Record{Digest: e.Digest()})
	c.StoreSeen(e)
	own := withAnnotations(t, b, annotationsOf(c))
	if _, ok := s.Seen(own, e.Digest()); !ok || own.Annotations["kopf.zalando.org/seen-"+e.Digest()+"-ofDRS"] == "" || !s.HasStray(own) || s.HasStray(own, s.Key("f")) {
		t.Errorf("got %q", own.Annotations)
	}
}

// B24: what was seen goes before anything else does.
func TestSeenStatesMakeRoom_B24_PRG7(t *testing.T) {
	s := storeWith(Default(), nil)
	large := &Essence{text: []byte(`{"spec":"` + noise(165<<10) + `"}`)}
	b := big(t, noise(130<<10), "")
	c := s.Changes(b)
	c.StoreRecord(s.Key("f"), Record{Success: true, Digest: large.Digest()})
	c.StoreSeen(large)
	after := withAnnotations(t, b, annotationsOf(c))
	if _, ok := s.Seen(after, large.Digest()); !ok || !strings.Contains(after.Annotations["kopf.zalando.org/seen-"+large.Digest()], "gzip") {
		t.Fatal("it is not kept compressed")
	}
	c = s.Changes(after)
	c.StoreLastHandled(s.Essence(after))
	after = withAnnotations(t, after, annotationsOf(c))
	if _, ok := s.Seen(after, large.Digest()); ok {
		t.Error("it is still there")
	}
	if last, known, err := s.LastHandled(after); !known || err != nil || !last.Complete() {
		t.Error("the last-handled state had to go instead:", known, err)
	}
	c = s.Changes(big(t, noise(200<<10), strings.Repeat("n", 200<<10)))
	c.StoreRecord(s.Key("f"), Record{Success: true, Digest: large.Digest()})
	c.StoreSeen(large)
	if changes := annotationsOf(c); len(changes) != 2 {
		t.Errorf("what does not fit is not left out: %d annotations", len(changes))
	}
	d, err := unpacked(large.digests())
	if err != nil {
		t.Fatal(err)
	}
	c = s.Changes(objectWith(nil))
	if c.StoreSeen(d); annotationsOf(c) != nil {
		t.Error("digests are kept, though nothing can be told from them that is not in the record")
	}
}

func TestSeenIsNeverAHandlers_B21(t *testing.T) {
	s := storeWith(Default(), nil)
	e := essences(`{}`)[0]
	c := s.Changes(objectWith(nil))
	k := s.Key("seen-" + e.Digest())
	c.StoreRecord(k, Record{Success: true, Digest: e.Digest()})
	c.StoreSeen(e)
	b := withAnnotations(t, objectWith(nil), annotationsOf(c))
	if records, err := s.Records(b, k); len(b.Annotations) != 3 || err != nil || len(records) != 1 {
		t.Errorf("%q, %v, %v", b.Annotations, records, err)
	}
	if _, ok := s.Seen(b, e.Digest()); !ok {
		t.Error("it is not known")
	}
	var _ storage.Object = (*body.Body)(nil)
}
