package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestThreeRenewals_B47 renews three times while each API server calls each replica each
// second; a replica comes late and first sees an old version; then the Secret is deleted, then
// each of its parts spoilt.
func TestThreeRenewals_B47(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, n := newWorld(t), calls{}
		defer w.end()
		w.start(w.store.client())
		w.start(w.store.client())
		start := time.Now()
		for w.store.generations() < 3 {
			w.second(w.handshake, &n)
		}
		late := w.store.client()
		late.stale = w.store.history[len(w.store.history)-2] // before the last serving certificate
		w.start(late)
		for w.store.generations() < 4 {
			w.second(w.handshake, &n)
		}
		if took := time.Since(start); took < 3*6*time.Minute || took > 3*8*time.Minute {
			t.Errorf("three renewals took %s", took)
		}
		before := w.store.now()
		w.store.delete()
		w.start(w.store.client()) // just then
		w.second(w.handshake, &n)
		w.second(w.handshake, &n)
		if now := w.store.now(); now == nil || !bytes.Equal(now.Data[keyCertificate], before.Data[keyCertificate]) {
			t.Error("the deleted Secret was not restored as it was")
		}
		for _, key := range []string{keyCertificate, keyKey, keyBundle, keyAuthorityKey} {
			w.store.edit(func(data map[string][]byte) { data[key] = []byte("garbage") })
			for range 5 {
				w.second(w.handshake, &n)
			}
			if now := w.store.now(); !bytes.Equal(now.Data[keyCertificate], before.Data[keyCertificate]) || !bytes.Equal(now.Data[key], before.Data[key]) {
				t.Errorf("a spoilt %s was not restored as it was", key)
			}
		}
		if n.failed > 0 || n.made < 2*18*60 {
			t.Errorf("%d of %d requests failed", n.failed, n.made)
		}
		t.Logf("%d requests, %d failed, %d versions of the Secret, %d of the configuration", n.made, n.failed, w.store.version, len(w.applied))
		for _, r := range w.live() {
			certificate, err := r.own.Certificate()
			if err != nil || !covers(certificate.Leaf, []string{"hooks.ops.svc", "hooks.ops.svc.cluster.local"}) {
				t.Errorf("%v, for %v", err, certificate.Leaf.DNSNames)
			}
			if trusted, err := parseBundle(r.own.Bundle()); err != nil || len(trusted) == 0 || len(trusted) > 2 {
				t.Errorf("the bundle has %d certificates, %v", len(trusted), err)
			}
		}
	})
}

// TestCrashAtEachWrite_B47 kills the replica that writes, before and after each of its writes.
func TestCrashAtEachWrite_B47(t *testing.T) {
	died := errors.New("died")
	for _, when := range []string{"before", "after"} {
		for nth := 1; nth <= 5; nth++ {
			t.Run(fmt.Sprint(when, nth), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, n := newWorld(t), calls{}
					defer w.end()
					var mu sync.Mutex
					writes, crashed := 0, false
					var start func()
					start = func() {
						c := w.store.client()
						dead, r := false, (*replica)(nil)
						crash := func(verb string) error {
							mu.Lock()
							defer mu.Unlock()
							if dead {
								return died
							}
							if verb != "create" && verb != "update" {
								return nil
							}
							if writes++; writes != nth {
								return nil
							}
							dead, crashed = true, true
							go func() {
								mu.Lock()
								victim := r
								mu.Unlock()
								w.kill(victim)
								time.Sleep(5 * time.Second)
								start()
							}()
							return died
						}
						if when == "before" {
							c.before = crash
						} else {
							c.after = crash
						}
						mu.Lock()
						r = w.start(c)
						mu.Unlock()
					}
					start()
					start()
					for w.store.generations() < 3 {
						w.second(w.verify, &n)
						if n.made > 10_000 {
							t.Fatal("no renewal")
						}
					}
					mu.Lock()
					defer mu.Unlock()
					if n.failed > 0 || !crashed {
						t.Errorf("%d of %d requests failed, crashed: %v", n.failed, n.made, crashed)
					}
				})
			})
		}
	}
}

// TestConflictAtEachWrite_B47 has somebody else write just before each write.
func TestConflictAtEachWrite_B47(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, n := newWorld(t), calls{}
		defer w.end()
		var mu sync.Mutex
		tried, conflicts := map[string]bool{}, 0
		for range 2 {
			c := w.store.client()
			c.before = func(verb string) error {
				mu.Lock()
				defer mu.Unlock()
				if now := w.store.now(); verb == "update" && !tried[now.Annotations["edited"]] {
					tried[now.Annotations["edited"]] = true
					w.store.mu.Lock()
					now.Annotations["edited"] = fmt.Sprint(conflicts)
					tried[now.Annotations["edited"]] = conflicts%2 == 0 // each second time once more
					conflicts++
					w.store.set(now)
					w.store.mu.Unlock()
				}
				return nil
			}
			w.start(c)
		}
		for w.store.generations() < 3 {
			w.second(w.verify, &n)
			if n.made > 10_000 {
				t.Fatal("no renewal")
			}
			if n.made%400 == 0 {
				mu.Lock()
				clear(tried)
				mu.Unlock()
			}
		}
		if n.failed > 0 || conflicts < 4 {
			t.Errorf("%d of %d requests failed, with %d conflicts", n.failed, n.made, conflicts)
		}
	})
}

// TestNotAllowed_B47 says what the role lacks, and goes on when it has it.
func TestNotAllowed_B47(t *testing.T) {
	for _, verb := range []string{"get", "create", "watch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				defer w.end()
				c, allowed := w.store.client(), atomic.Bool{}
				c.before = func(tried string) error {
					if tried == verb && !allowed.Load() {
						return apierrors.NewForbidden(secretsResource, secretName.Name, errors.New("no"))
					}
					return nil
				}
				r := w.start(c)
				time.Sleep(10 * time.Second)
				_, err := r.own.Certificate()
				if verb == "watch" {
					err = troubleOf(r.own)
				}
				want := fmt.Sprintf("may not %s the secret ops/operator-webhook with the webhooks' certificate: the operator's role needs %q on \"secrets\" in namespace \"ops\"", verb, verb)
				if err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
					t.Errorf("%v does not say %s", err, want)
				}
				allowed.Store(true)
				time.Sleep(time.Minute)
				if _, err := r.own.Certificate(); err != nil || troubleOf(r.own) != nil {
					t.Errorf("%v, %v", err, troubleOf(r.own))
				}
			})
		})
	}
}

func troubleOf(own *OwnCertificates) error {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.trouble
}
