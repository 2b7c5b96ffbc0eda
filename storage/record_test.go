package storage

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

// B.3.4, T063, T067: byte for byte what Kopf writes.
func TestRecordsAreWrittenAsKopfDoes_B31_T063_T067(t *testing.T) {
	start, delay := at("2026-11-30T01:32:58.834117Z"), at("2026-11-30T02:33:58.834161999+01:00")
	for _, c := range []struct {
		record Record
		want   string
	}{
		{Record{}, `{"retries":0,"success":false,"failure":false}`},
		{Record{Started: at("2026-11-30T01:32:58.834105Z"), Stopped: at("2026-11-30T01:32:59Z"), Purpose: "create", Retries: 1, Success: true},
			`{"started":"2026-11-30T01:32:58.834105+00:00","stopped":"2026-11-30T01:32:59.000000+00:00","purpose":"create","retries":1,"success":true,"failure":false}`},
		{Record{Started: start, Delayed: delay, Purpose: "create", Retries: 1, Message: "Not \"ready\" ü."},
			`{"started":"2026-11-30T01:32:58.834117+00:00","delayed":"2026-11-30T01:33:58.834161+00:00","purpose":"create","retries":1,"success":false,"failure":false,"message":"Not \"ready\" \u00fc."}`},
		{Record{Retries: 12, Failure: true, Message: "None", Subrefs: []string{"p/b", "p/a", "p/b"}, Digest: "0a"},
			`{"retries":12,"success":false,"failure":true,"message":"None","subrefs":["p/a","p/b"],"digest":"0a"}`},
	} {
		if got := c.record.Encode(); got != c.want {
			t.Errorf("\n got %s\nwant %s", got, c.want)
		}
		back, err := DecodeRecord(c.want)
		if err != nil || !back.Equal(&c.record) {
			t.Errorf("%s is read as %+v, %v", c.want, back, err)
		}
	}
}

func TestRecordsAreReadTolerantly_B32_B33(t *testing.T) {
	start := at("2026-11-30T01:32:58Z")
	for value, want := range map[string]Record{
		`{}`: {},
		` {"started":null,"retries":null,"success":null,"subrefs":null,"message":null} `: {},
		`{"unknown":{"a":[1]},"retries":2}`:                                              {Retries: 2},
		`{"started":"2026-11-30T01:32:58Z"}`:                                             {Started: start},
		`{"started":"2026-11-30T01:32:58+00:00"}`:                                        {Started: start},
		`{"started":"2026-11-30T03:32:58.000000+02:00"}`:                                 {Started: start},
		`{"started":"2026-11-30T03:32:58.000+0200"}`:                                     {Started: start},
		`{"started":"2026-11-29T20:32:58-05"}`:                                           {Started: start},
		`{"started":"2026-11-30T01:32:58"}`:                                              {Started: start}, // X05: naive is UTC
		`{"started":"2026-11-30 01:32:58.0"}`:                                            {Started: start},
		`{"started":"2026-11-30T01:32:58.0000009Z"}`:                                     {Started: start},
		`{"\u0073uccess":true,"subrefs":[],"message":""}`:                                {Success: true},
		`{"message":"\ud800 half"}`:                                                      {Message: "\ufffd half"},
	} {
		got, err := DecodeRecord(value)
		if err != nil || !got.Equal(&want) {
			t.Errorf("%s\n got %+v, %v\nwant %+v", value, got, err, want)
		}
		if got.Started.Location() != time.UTC {
			t.Errorf("%s: the time is in %v", value, got.Started.Location())
		}
	}
}

func TestCorruptRecordsNameTheirAnnotation_DB6(t *testing.T) {
	for _, value := range []string{``, `x`, `[]`, `"a"`, `{`, `{"retries":"1"}`, `{"started":1}`, `{"started":"soon"}`, `{"subrefs":"a"}`, `{} {}`} {
		_, ok, err := annotated(t).Fetch(objectWith(map[string]string{"kopf.zalando.org/bad.one": value}), "bad/one")
		var corrupt *CorruptError
		if ok || !errors.As(err, &corrupt) || corrupt.Where != "annotation kopf.zalando.org/bad.one" || !strings.Contains(err.Error(), corrupt.Where) {
			t.Errorf("%s: error is %v", value, err)
		}
	}
}

// T060, B.2.4.
func TestRecordsAreReadFromBothNames_T060(t *testing.T) {
	id := strings.Repeat("y", 64)
	names := annotated(t).namesOf(objectWith(nil), id)
	v2, v1 := names[0], names[1]
	for _, c := range []struct {
		annotations map[string]string
		want        int
	}{
		{map[string]string{v2: `{"retries":2}`, v1: `{"retries":1}`}, 2},
		{map[string]string{v1: `{"retries":1}`}, 1},
		{map[string]string{v2: `null`, v1: `{"retries":1}`}, 1},
		{map[string]string{"kopf.zalando.org/other": `{"retries":3}`}, -1},
		{nil, -1},
	} {
		r, ok, err := annotated(t).Fetch(objectWith(c.annotations), id)
		if err != nil || ok != (c.want >= 0) || ok && r.Retries != c.want {
			t.Errorf("%v: got %v, %v", c.annotations, r, err)
		}
	}
}

// PRG-1, T071.
func TestRecordStates_T071_PRG1(t *testing.T) {
	now := at("2026-11-30T01:00:00Z")
	past, future := now.Add(-time.Second), now.Add(time.Microsecond)
	for _, c := range []struct {
		record                    Record
		finished, sleeping, awake bool
	}{
		{Record{}, false, false, true},
		{Record{Delayed: past}, false, false, true},
		{Record{Delayed: now}, false, false, true},
		{Record{Delayed: future}, false, true, false},
		{Record{Delayed: future, Success: true}, true, false, false},
		{Record{Delayed: future, Failure: true}, true, false, false},
		{Record{Success: true}, true, false, false},
	} {
		r := &c.record
		if r.Finished() != c.finished || r.Sleeping(now) != c.sleeping || r.Awake(now) != c.awake {
			t.Errorf("%+v: finished %v, sleeping %v, awake %v", c.record, r.Finished(), r.Sleeping(now), r.Awake(now))
		}
	}
}

// B.3.6.
func TestRecordEquality_B36(t *testing.T) {
	same := full
	same.Started = same.Started.In(time.FixedZone("x", 3600)).Add(999 * time.Nanosecond)
	same.Subrefs = []string{"p/b", "p/a", "p/b"}
	if !full.Equal(&same) {
		t.Error("equal records differ")
	}
	for name, change := range map[string]func(*Record){
		"started":  func(r *Record) { r.Started = r.Started.Add(time.Microsecond) },
		"stopped":  func(r *Record) { r.Stopped = time.Time{} },
		"delayed":  func(r *Record) { r.Delayed = time.Time{} },
		"purpose":  func(r *Record) { r.Purpose = "" },
		"retries":  func(r *Record) { r.Retries++ },
		"success":  func(r *Record) { r.Success = false },
		"failure":  func(r *Record) { r.Failure = true },
		"message":  func(r *Record) { r.Message = "" },
		"subrefs":  func(r *Record) { r.Subrefs = nil },
		"digest":   func(r *Record) { r.Digest = "" },
		"subrefs2": func(r *Record) { r.Subrefs = []string{"p/a"} },
	} {
		other := full
		change(&other)
		if full.Equal(&other) {
			t.Errorf("a change of %s is not seen", name)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(full.Encode())
	f.Add(`{"started":"2026-11-30 01:32:58","message":"\ud83d\ude00\u00fc\/","subrefs":["b","a"],"x":null}`)
	f.Add(`{"started":"0000-01-01T00:00:00Z","retries":-1}`)
	f.Add(`{`)
	f.Fuzz(func(t *testing.T, value string) {
		r, err := DecodeRecord(value)
		if err != nil {
			return
		}
		text := r.Encode()
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q is written as %q", value, text)
		}
		for i := range len(text) {
			if text[i] < ' ' || text[i] > '~' {
				t.Fatalf("%q is not ASCII", text)
			}
		}
		back, err := DecodeRecord(text)
		if err != nil || !back.Equal(&r) || back.Encode() != text {
			t.Errorf("%q is written as %q and read as %+v, %v", value, text, back, err)
		}
	})
}
