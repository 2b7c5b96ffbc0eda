package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kopf-go/kopf/internal/body"
)

// B.2.6, T057: the vectors that were made by running Kopf.
func TestNamesAreKopfs_B26_T057_T058(t *testing.T) {
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
		if got := annotatedUnder(t, c.prefix).namesOf(objectWith(nil), c.key); !slices.Equal(got, want) {
			t.Errorf("%s\n got %q\nwant %q", c.key, got, want)
		}
	}
}

// T059, B.2.2.
func TestReplicaSetsOfDeploymentsHaveMarkedNames_T059(t *testing.T) {
	object := func(kind, owner string) *body.Body {
		return parse(t, `{"kind":"`+kind+`","metadata":{"ownerReferences":[{"kind":"Other"},{"kind":"`+owner+`"}]}}`)
	}
	id := "fn/" + strings.Repeat("x", 50)
	plain := kopfNames("kopf.zalando.org", id)
	marked := kopfNames("kopf.zalando.org", id+"-ofDRS")
	for _, c := range []struct {
		b    *body.Body
		want []string
	}{
		{object("ReplicaSet", "Deployment"), marked},
		{object("ReplicaSet", "Rollout"), plain},
		{object("Pod", "Deployment"), plain},
		{parse(t, `{"kind":"ReplicaSet"}`), plain},
	} {
		if got := annotated(t).namesOf(c.b, id); !slices.Equal(got, c.want) {
			t.Errorf("%s\n got %q\nwant %q", c.b.Raw(), got, c.want)
		}
	}
	if want := "kopf.zalando.org/fn-ofDRS"; annotated(t).namesOf(object("ReplicaSet", "Deployment"), "fn")[0] != want {
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
		names := annotated(t).namesOf(objectWith(nil), id)
		if len(names) != 1 || names[0] != "kopf.zalando.org/"+want {
			t.Errorf("%q: got %q, want %q", id, names, want)
		}
	}
}

func TestAnIllegalV1IsLeftOut(t *testing.T) {
	id := strings.Repeat("a", 38) + "." + strings.Repeat("b", 10) // V1 is cut behind the dot, which is legal
	if names := annotated(t).namesOf(objectWith(nil), id); len(names) != 2 {
		t.Errorf("got %q", names)
	}
	prefix := strings.Repeat("a", 60) + ".kopf.zalando.org" // no room for V1 at all: it would be "-" and a hash
	if names := annotatedUnder(t, prefix).namesOf(objectWith(nil), "create_fn"); len(names) != 1 || names[0] != prefix+"/create_fn" {
		t.Errorf("got %q", names)
	}
}

func FuzzNames_B21(f *testing.F) {
	for _, id := range []string{"fn", "a/b", "<locals>", "lambda:f:1", "", strings.Repeat("é", 70), "x-ofDRS", "\xff", "-", "touch-dummy", "seen-", "seen-0123456789abcdef"} {
		f.Add(id, uint8(0))
		f.Add(id, uint8(70))
	}
	deployed := parse(f, `{"kind":"ReplicaSet","metadata":{"ownerReferences":[{"kind":"Deployment"}]}}`)
	f.Fuzz(func(t *testing.T, id string, room uint8) {
		prefix := strings.Repeat("a", int(room%63)+1) + ".kopf.zalando.org"
		for i, b := range []*body.Body{objectWith(nil), deployed} {
			names := annotatedUnder(t, prefix).namesOf(b, id)
			if len(names) == 0 || len(names) > 2 {
				t.Fatalf("%q has the names %q", id, names)
			}
			for _, name := range names {
				if problems := validation.IsQualifiedName(name); len(problems) > 0 {
					t.Errorf("%q gives %q: %v", id, name, problems)
				}
				if !strings.HasPrefix(name, prefix+"/") {
					t.Errorf("%q is not under %s", name, prefix)
				}
				if reserved(name[len(prefix)+1:]) {
					t.Errorf("%q would be stored in %s", id, name)
				}
			}
			kopfs := kopfNames(prefix, id+marks[i])[0]
			if len(validation.IsQualifiedName(kopfs)) == 0 && kopfs != names[0] && !reserved(kopfs[len(prefix)+1:]) {
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
			name := annotated(t).namesOf(objectWith(nil), id+long)[0]
			if other, ok := seen[name]; ok {
				t.Errorf("%q and %q are both %s", other, id+long, name)
			}
			seen[name] = id + long
		}
	}
}

// B21: ten thousand ids of any Unicode. The sum is of all names: they must be the same
// in all releases, or handlers in the middle of their work begin anew.
func TestAnyIdsAreLegalAndApart_B21(t *testing.T) {
	const sum = "12a98bc18571dd8f2ec3585b98d5d4a736217f56496ff7d09f81ec1766de0d15"
	r := rand.New(rand.NewPCG(21, 346))
	all := sha256.New()
	for _, size := range []int{0, 20, 46} { // the longest prefix has 63 characters
		prefix := strings.Repeat("a", size) + "." + DefaultPrefix
		prefix = strings.TrimPrefix(prefix, ".")
		a, o, seen := annotatedUnder(t, prefix), objectWith(nil), map[string]string{}
		for range 3334 {
			id := randomID(r)
			for _, name := range a.namesOf(o, id) {
				if problems := validation.IsQualifiedName(name); len(problems) > 0 {
					t.Fatalf("%q gives %q: %v", id, name, problems)
				}
				if other, taken := seen[name]; taken && other != id {
					t.Errorf("%q and %q are both %s", other, id, name)
				}
				seen[name] = id
				all.Write([]byte(name))
			}
		}
	}
	if got := hex.EncodeToString(all.Sum(nil)); got != sum {
		t.Errorf("names have changed: the sum is %s", got)
	}
}

func randomID(r *rand.Rand) string {
	alphabets := []func() rune{
		func() rune { return rune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[r.IntN(62)]) },
		func() rune { return rune("abcxyz_-./<>[]: "[r.IntN(16)]) },
		func() rune { return rune(r.IntN(0xd800)) },
		func() rune { return rune(0x1f300 + r.IntN(0x200)) },
	}
	id := make([]rune, 8+r.IntN(293))
	pick := alphabets[r.IntN(len(alphabets))]
	for i := range id {
		id[i] = pick()
	}
	return string(id)
}
