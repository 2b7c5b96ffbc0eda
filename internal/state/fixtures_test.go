package state

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kopf-go/kopf/internal/body"
)

// fixtures returns objects that a Python operator has left behind: our own, and
// the ones shared between the project's parts, where they are.
func fixtures(t *testing.T) map[string]*body.Body {
	t.Helper()
	objects := map[string]*body.Body{}
	for _, folder := range []string{"testdata", "../../testdata/kopf-state", "../../../shared/fixtures/kopf-state"} {
		files, err := filepath.Glob(filepath.Join(folder, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects[filepath.ToSlash(file)] = parse(t, string(raw))
		}
	}
	return objects
}

// X05, X06: what Python has written is understood, and would be written the same.
func TestPythonsStateIsContinued_X05_X06(t *testing.T) {
	phase := [][]string{{"status", "phase"}}
	for file, b := range fixtures(t) {
		t.Run(file, func(t *testing.T) {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			last, known, err := lastHandledBy(b, Default())
			if err != nil {
				t.Fatal(err)
			}
			same, alsoKnown, err := handledBy(b, Default(), nil)
			if err != nil || alsoKnown != known {
				t.Fatal(alsoKnown, err)
			}
			switch name {
			case "handled", "failed", "bare", "deleting":
				if !known || !same || !essenceOf(b, Default(), nil).Equal(last) {
					t.Error("is not handled")
				}
				if changed, _, _ := handledBy(b, Default(), phase); changed != (name != "handled" || b.Kind != "Gadget") {
					t.Error("with status.phase: the opposite is expected")
				}
			case "statusfield":
				if same || essenceOf(b, Default(), nil).Equal(last) {
					t.Error("is handled without its extra field")
				}
				if same, known, err := handledBy(b, Default(), phase); !same || !known || err != nil {
					t.Error("is not handled with its extra field", err)
				}
			case "updating":
				now, err := essenceOf(b, Default(), nil).Tree()
				if err != nil || same {
					t.Fatal(same, err)
				}
				was, err := last.Tree()
				if err != nil {
					t.Fatal(err)
				}
				replicas := func(tree map[string]any) any { return tree["spec"].(map[string]any)["replicas"] }
				if replicas(was) != int64(1) || replicas(now) != int64(5) {
					t.Errorf("changed from %v to %v", replicas(was), replicas(now))
				}
			default:
				if known {
					t.Error("was not handled yet")
				}
			}
			c := storeWith(Default(), nil).Changes(b)
			if known {
				c.StoreLastHandled(last)
				if text := string(last.Bytes()) + "\n"; text != b.Annotations[configuration] {
					t.Errorf("\n got %s\nwant %s", text, b.Annotations[configuration])
				}
			}
			for _, stray := range strays(b, Default()) {
				r, err := DecodeRecord(b.Annotations[stray])
				if err != nil {
					t.Fatal(err)
				}
				if text := r.Encode(); text != b.Annotations[stray] {
					t.Errorf("\n got %s\nwant %s", text, b.Annotations[stray])
				}
				c.StoreRecord(storeWith(Default(), nil).Key(strings.TrimPrefix(stray, "kopf.zalando.org/")), r)
			}
			if changes := annotationsOf(c); changes != nil {
				t.Errorf("what is there is written again: %q", spelled(changes))
			}
		})
	}
}

// Byte for byte: the API server sorts keys, adds escapes and keeps numbers.
func TestTheEssenceIsWrittenAsPythonDoes_B4(t *testing.T) {
	for file, b := range fixtures(t) {
		extra := [][]string(nil)
		switch name := strings.TrimSuffix(filepath.Base(file), ".json"); {
		case name == "updating", b.Annotations[configuration] == "":
			continue
		case name == "statusfield":
			extra = [][]string{{"status", "phase"}}
		case file == "testdata/handled.json":
			continue // not sorted by anybody
		}
		if got := string(essenceOf(b, Default(), extra).Bytes()) + "\n"; got != b.Annotations[configuration] {
			t.Errorf("%s\n got %s\nwant %s", file, got, b.Annotations[configuration])
		}
	}
}

func TestPythonsRecordsAreFound(t *testing.T) {
	for file, want := range map[string]struct {
		ids    []string
		awaits int // how many wait for their time
	}{
		"subs":     {[]string{"outer", "outer/x", "outer/y"}, 1},
		"updating": {[]string{"scale/spec.replicas"}, 1},
		"longname": {[]string{strings.Repeat("y", 64)}, 0},
		"handled":  {nil, 0},
	} {
		b := fixtures(t)["testdata/"+file+".json"]
		keys := []*Keys{storeWith(Default(), nil).Key("never")}
		for _, id := range want.ids {
			keys = append(keys, storeWith(Default(), nil).Key(id))
		}
		records, err := storeWith(Default(), nil).Records(b, keys...)
		if err != nil {
			t.Fatal(err)
		}
		found, awaits := []string(nil), 0
		for id, r := range records {
			found = append(found, id)
			if r.Sleeping(at("2027-03-04T05:07:00Z")) {
				awaits++
			}
		}
		slices.Sort(found)
		if !slices.Equal(found, want.ids) || awaits != want.awaits {
			t.Errorf("%s: found %q, %d of them waiting", file, found, awaits)
		}
		if strays := strays(b, Default(), keys...); strays != nil {
			t.Errorf("%s: strays %q", file, strays)
		}
	}
}
