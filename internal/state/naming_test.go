package state

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kopf-go/kopf/internal/body"
)

func TestDefaultNamingIsKopfs_B1(t *testing.T) {
	if n := Default(); n.Prefix != "kopf.zalando.org" || n.Finalizer != "kopf.zalando.org/KopfFinalizerMarker" {
		t.Errorf("got %s, %s", n.Prefix, n.Finalizer)
	}
}

func TestForMakesAnIsolatedNaming(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 58)+".", 4) // 236 characters with its dots
	for _, c := range []struct{ name, prefix, problem string }{
		{"", "kopf.zalando.org", ""},
		{"widgets", "widgets.kopf.zalando.org", ""},
		{"team.widgets", "team.widgets.kopf.zalando.org", ""},
		{"Widgets", "", "choose one like"},
		{"my operator", "", "choose one like"},
		{"a/b", "", "choose one like"},
		{"-a", "", "choose one like"},
		{".", "", "choose one like"},
		{long + "a", long + "a.kopf.zalando.org", "too long"},
		{long[:len(long)-1], long + "kopf.zalando.org", ""},
	} {
		n, err := For(c.name)
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("For(%q): error is %v, want one with %q", c.name, err, c.problem)
			}
			continue
		}
		if err != nil || n.Prefix != c.prefix {
			t.Errorf("For(%q) = %q, %v", c.name, n.Prefix, err)
		}
		if c.name != "" && n.Finalizer != c.prefix+"/finalizer" {
			t.Errorf("For(%q) has the finalizer %q", c.name, n.Finalizer)
		}
		if problems := validation.IsQualifiedName(n.Finalizer); len(problems) > 0 {
			t.Errorf("finalizer %q: %v", n.Finalizer, problems)
		}
	}
}

func TestCustomNaming_SET4(t *testing.T) {
	for _, c := range []struct{ prefix, finalizer, problem string }{
		{"my-operator.example.com", "example.com/mine", ""},
		{"", "example.com/mine", "empty"},
		{"My_Prefix", "example.com/mine", "illegal"},
		{strings.Repeat("a.", 127), "example.com/mine", "illegal"},
		{"example.com", "two words", "illegal"},
	} {
		_, err := Custom(c.prefix, c.finalizer)
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("Custom(%q, %q): %v", c.prefix, c.finalizer, err)
		}
	}
}

// B.2.6, T057: the vectors that were made by running Kopf.
func TestNamesAreKopfs_B26(t *testing.T) {
	const kopf, mine = "kopf.zalando.org", "my-operator.example.com"
	repeat := strings.Repeat
	for _, c := range []struct{ prefix, key, v2, v1 string }{
		{kopf, "create_fn", "create_fn", ""},
		{kopf, "create_fn/item1", "create_fn.item1", ""},
		{kopf, "update_fn/spec.field", "update_fn.spec.field", ""},
		{kopf, "MyCls.method.<locals>.inner", "MyCls.method._locals_.inner", ""},
		{kopf, repeat("x", 46), repeat("x", 46), ""},
		{kopf, repeat("x", 47), repeat("x", 47), repeat("x", 39) + "-xRCOAQ"},
		{kopf, repeat("y", 64), repeat("y", 56) + "-0d251g", repeat("y", 39) + "-0d251g"},
		{kopf, "create_fn_with_a_really_long_name/sub_handler_with_a_long_name/and_more_of_it",
			"create_fn_with_a_really_long_name.sub_handler_with_a_lon-8bX4Rg",
			"create_fn_with_a_really_long_name.sub_h-sstDVQ"},
		{kopf, repeat("a/", 40), repeat("a.", 28) + "-VkP9Ag", repeat("a.", 20)[:39] + "-OZE4aA"},
		{mine, repeat("x", 40), repeat("x", 40), repeat("x", 32) + "-tEokcg"},
		{mine, repeat("y", 40), repeat("y", 40), repeat("y", 32) + "-VZlvhw"},
		{mine, repeat("z", 40), repeat("z", 40), repeat("z", 32) + "-LlPQyA"},
		{mine, repeat("x", 64), repeat("x", 56) + "-SItAqA", repeat("x", 32) + "-SItAqA"},
		{mine, repeat("z", 64), repeat("z", 56) + "-E7wvIA", repeat("z", 32) + "-E7wvIA"},
		{mine, repeat("fn", 323), repeat("fn", 28) + "-Az-r.g", repeat("fn", 16) + "-Az-r.g"},
	} {
		want := []string{c.prefix + "/" + c.v2}
		if c.v1 != "" { // T058
			want = append(want, c.prefix+"/"+c.v1)
		}
		n, err := Custom(c.prefix, Default().Finalizer)
		if err != nil {
			t.Fatal(err)
		}
		if got := NewKeys(n, c.key).Names(&body.Body{}); !slices.Equal(got, want) {
			t.Errorf("%s\n got %q\nwant %q", c.key, got, want)
		}
	}
}

// T059, B.2.2.
func TestReplicaSetsOfDeploymentsHaveMarkedNames_T059(t *testing.T) {
	object := func(kind, owner string) *body.Body {
		return parse(t, `{"kind":"`+kind+`","metadata":{"ownerReferences":[{"kind":"Other"},{"kind":"`+owner+`"}]}}`)
	}
	k := NewKeys(Default(), "fn/"+strings.Repeat("x", 50))
	plain := kopfNames("kopf.zalando.org", k.ID)
	marked := kopfNames("kopf.zalando.org", k.ID+"-ofDRS")
	for _, c := range []struct {
		b    *body.Body
		want []string
	}{
		{object("ReplicaSet", "Deployment"), marked},
		{object("ReplicaSet", "Rollout"), plain},
		{object("Pod", "Deployment"), plain},
		{parse(t, `{"kind":"ReplicaSet"}`), plain},
	} {
		if got := k.Names(c.b); !slices.Equal(got, c.want) {
			t.Errorf("%s\n got %q\nwant %q", c.b.Raw(), got, c.want)
		}
	}
	if want := "kopf.zalando.org/fn-ofDRS"; NewKeys(Default(), "fn").Names(object("ReplicaSet", "Deployment"))[0] != want {
		t.Errorf("want %s", want)
	}
}

// B21: ids for which Kopf's names are refused by the API server. These names are on
// objects of users: they must never change.
func TestIllegalIdsGetLegalNames_B21(t *testing.T) {
	for id, want := range map[string]string{
		"on update [v1]":                 "on_update__v1-abe88dcb8d1809e7",
		"lambda:/src/operator.py:12":     "lambda_.src.operator.py_12-71566867404b9b67",
		"<lambda>":                       "lambda-5daf6cca0c8e8696",
		"_private":                       "private-5b568545727c8852",
		"fn-":                            "fn-83cfc3b85e9efe27",
		"größe":                          "gr__e-f4f8e155c9329ae9",
		"日本":                             "e83335cfe1549b3a",
		"":                               "e4a6a0577479b2b4",
		"touch-dummy":                    "touch-dummy-834948625247861c",
		"kopf-managed":                   "kopf-managed-69da2e356efea3b8",
		"last-handled-configuration":     "last-handled-configuration-072279366b252d9a",
		"a b" + strings.Repeat("c", 100): "a_b" + strings.Repeat("c", 43) + "-52c7ffccbf187230",
	} {
		names := NewKeys(Default(), id).Names(&body.Body{})
		if len(names) != 1 || names[0] != "kopf.zalando.org/"+want {
			t.Errorf("%q: got %q, want %q", id, names, want)
		}
	}
}

func TestAnIllegalV1IsLeftOut(t *testing.T) {
	id := strings.Repeat("a", 38) + "." + strings.Repeat("b", 10) // V1 is cut behind the dot, which is legal
	if names := NewKeys(Default(), id).Names(&body.Body{}); len(names) != 2 {
		t.Errorf("got %q", names)
	}
	n, err := For(strings.Repeat("a", 60)) // no room for V1 at all: it would be "-" and a hash
	if err != nil {
		t.Fatal(err)
	}
	if names := NewKeys(n, "create_fn").Names(&body.Body{}); len(names) != 1 || names[0] != n.Prefix+"/create_fn" {
		t.Errorf("got %q", names)
	}
}

func TestLiteralNamingWorks(t *testing.T) {
	b := parse(t, `{"metadata":{"uid":"u","annotations":{"p.example.com/last-handled-configuration":"{}"}}}`)
	if _, known, err := LastHandled(b, Naming{Prefix: "p.example.com"}); !known || err != nil {
		t.Error(known, err)
	}
}

func FuzzNames_B21(f *testing.F) {
	for _, id := range []string{"fn", "a/b", "<locals>", "lambda:f:1", "", strings.Repeat("é", 70), "x-ofDRS", "\xff", "-", "touch-dummy"} {
		f.Add(id, uint8(0))
		f.Add(id, uint8(70))
	}
	deployed := parse(f, `{"kind":"ReplicaSet","metadata":{"ownerReferences":[{"kind":"Deployment"}]}}`)
	f.Fuzz(func(t *testing.T, id string, room uint8) {
		n, err := For(strings.Repeat("a", int(room%64)))
		if err != nil {
			t.Fatal(err)
		}
		k := NewKeys(n, id)
		for i, b := range []*body.Body{{}, deployed} {
			names := k.Names(b)
			if len(names) == 0 || len(names) > 2 {
				t.Fatalf("%q has the names %q", id, names)
			}
			for _, name := range names {
				if problems := validation.IsQualifiedName(name); len(problems) > 0 {
					t.Errorf("%q gives %q: %v", id, name, problems)
				}
				if !strings.HasPrefix(name, n.Prefix+"/") {
					t.Errorf("%q is not under %s", name, n.Prefix)
				}
				if n.names().has(name) {
					t.Errorf("%q would be stored in %s", id, name)
				}
			}
			kopfs := kopfNames(n.Prefix, id+marks[i])[0]
			if len(validation.IsQualifiedName(kopfs)) == 0 && kopfs != names[0] && !n.names().has(kopfs) {
				t.Errorf("%q gives %q, but Kopf's %q is legal", id, names[0], kopfs)
			}
		}
	})
}

// B21: no two ids collide, but for those that do in Kopf.
func TestIdsDoNotCollide_B21(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"a b", "a_b", "a[b", "a]b", "a:b", "a b ", " a b", "a b_", "ä", "ö", "-a", "_a", ".a", "a", "a.", "a-"} {
		for _, long := range []string{"", strings.Repeat("x", 80), strings.Repeat("y", 80)} {
			name := NewKeys(Default(), id+long).Names(&body.Body{})[0]
			if other, ok := seen[name]; ok {
				t.Errorf("%q and %q are both %s", other, id+long, name)
			}
			seen[name] = id + long
		}
	}
}
