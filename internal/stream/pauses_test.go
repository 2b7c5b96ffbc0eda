package stream

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// WCH-3: a version that is too old is no failure, and no reason to wait. Failures
// wait longer and longer, until a watch works again.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPauses(wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10})
		expect := func(what string, got, want time.Duration) {
			t.Helper()
			if got != want {
				t.Errorf("%s: waits %s, want %s", what, got, want)
			}
		}
		expect("first failure", p.again(), time.Second)
		expect("second failure", p.again(), 2*time.Second)
		p.expire()
		expect("expired", p.beforeList(), relistDelay)
		p.expire()
		expect("expired again without a sign of life", p.beforeList(), 4*time.Second)
		p.reset()
		expect("first failure after a sign of life", p.again(), time.Second)
		p.expire()
		expect("expired after a sign of life", p.beforeList(), relistDelay)
		p.again()
		time.Sleep(quietTime + time.Second)
		expect("failure after a quiet time", p.again(), time.Second)
	})
}
