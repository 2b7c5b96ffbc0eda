package rawjson

import (
	"encoding/json"
	"strings"
	"testing"
)

// B.3.1: the vectors were made with json.dumps of Python 3.11.
func TestTextsAreEscapedAsPythonDoes_B31(t *testing.T) {
	for in, want := range map[string]string{
		"plain ~":              `plain ~`,
		`"\/`:                  `\"\\/`,
		"\n\r\t\b\f":           `\n\r\t\b\f`,
		"\x00\x01\x0b\x1f\x7f": `\u0000\u0001\u000b\u001f\u007f`,
		"<>&'":                 `<>&'`,
		"ü\u0080\u2028\uffff":  `\u00fc\u0080\u2028\uffff`,
		"😀":                    `\ud83d\ude00`,
		"a\xffb":               `a\ufffdb`,
	} {
		got := string(AppendString(nil, in))
		if got != `"`+want+`"` {
			t.Errorf("%q\n got %s\nwant %s", in, got, want)
		}
		// Copying makes the same of every way in which it can be written.
		goes, _ := json.Marshal(in)
		for _, written := range []string{string(goes), got, strings.ReplaceAll(string(goes), "/", `\/`)} {
			w := Walker{Src: []byte(written)}
			if copied := string(w.Copy(nil)); copied != got {
				t.Errorf("%s is copied as %s", written, copied)
			}
		}
	}
}

// Bytes that are no JSON never get here; if they did, nothing worse than nonsense
// should happen.
func FuzzWalkerSurvivesAnything(f *testing.F) {
	for _, raw := range []string{`{"a":"\u12`, `{"a`, `{"a":`, `[[[`, `{{}}`, `{"a":1,"`, `"\`, `]`, `{"a":[,,:`, "[\xff}"} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		w := Walker{Src: raw}
		w.Copy(nil)
		w = Walker{Src: raw}
		w.Skip()
		for w = (Walker{Src: raw}); w.Member(); {
			w.Raw()
		}
		if len(raw) < 1000 {
			AppendCanonical(nil, raw)
		}
	})
}
