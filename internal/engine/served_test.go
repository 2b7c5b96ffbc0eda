package engine

import (
	"slices"
	"testing"
)

// PEER-1: those who take part in something in each served namespace learn which those are.
func TestServed_PEER1(t *testing.T) {
	e := New(Config{})
	expect := func(want ...string) (changed <-chan struct{}) {
		t.Helper()
		names, changed := e.Served()
		if !slices.Equal(names, want) || (names == nil) != (want == nil) {
			t.Errorf("served are %q, want %q", names, want)
		}
		return changed
	}
	first := expect()
	e.spaces.are(map[string]bool{"b": true})
	<-first
	second := expect() // not all are known
	e.spaces.complete()
	<-second
	third := expect("b")
	e.spaces.are(map[string]bool{"b": true, "a": true})
	<-third
	fourth := expect("a", "b")
	e.spaces.are(nil)
	<-fourth
	fifth := expect([]string{}...)
	select {
	case <-fifth:
		t.Error("nothing has changed")
	default:
	}
}
