package engine

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kopf-go/kopf/internal/body"
)

func version(v string) *body.Body {
	return body.Identify(metav1.TypeMeta{}, "ns", "n", "u", v)
}

// CON-1, B13: what is older than a response, or the response's own echo, is dropped.
func TestBarrierComparesVersions_CON1_CON2(t *testing.T) {
	o := actor()
	for _, step := range []struct {
		version string
		want    bool
	}{{"7", true}, {"7", false}, {"6", false}, {"10", true}, {"9", false}} {
		if got := o.admit(version(step.version)); got != step.want {
			t.Errorf("version %s: admitted %t, want %t", step.version, got, step.want)
		}
	}
	if latest := o.learn(version("12")); latest.ResourceVersion != "12" {
		t.Errorf("a response is not the newest: %s", latest.ResourceVersion)
	}
	if latest := o.learn(version("11")); latest.ResourceVersion != "12" {
		t.Errorf("an older response, of a checkpoint, became the newest: %s", latest.ResourceVersion)
	}
	if o.admit(version("12")) || o.admit(version("11")) || !o.admit(version("13")) {
		t.Error("the barrier does not stand at the response")
	}
}

// Versions of an aggregated API: only whether they are equal can be told.
func TestBarrierOfVersionsThatCannotBeCompared_CON2_T109(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := actor()
		if !o.admit(version("b")) || o.admit(version("b")) {
			t.Error("equal versions are told apart, or different ones are not")
		}
		o.learn(version("a")) // an own write
		if o.admit(version("z")) || !o.work.refresh {
			t.Error("an event is believed before the write was seen, or forgotten")
		}
		if latest := o.learn(version("y")); latest.ResourceVersion != "y" {
			t.Error("what was just read is not believed")
		}
		if o.admit(version("y")) {
			t.Error("the echo is taken for news")
		}
		if !o.admit(version("x")) {
			t.Error("nothing is believed after the write was seen")
		}
		o.learn(version("w"))
		time.Sleep(o.kind.engine.settings.ConsistencyTimeout)
		if !o.admit(version("v")) {
			t.Error("nothing is believed after the time-out")
		}
	})
}

func actor() *object {
	e := &Engine{settings: Settings{}.WithDefaults()}
	return &object{kind: &kind{engine: e}, work: &work{}}
}
