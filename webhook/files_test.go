package webhook

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// made is a certificate of an authority, as somebody else makes them.
func made(t *testing.T, a *authority) *pair {
	t.Helper()
	p, err := a.sign(serviceOf.Names(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func madeAuthority(t *testing.T) *authority {
	t.Helper()
	a, err := newAuthority(time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// runUntil runs certificates, and returns what stops them.
func runUntil(t *testing.T, c Certificates) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx, serviceOf.Names(), func() {}); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// expect checks what is served, and that clients which trust these bundles take it.
func expect(t *testing.T, c Certificates, what string, want *pair, bundles ...[]byte) {
	t.Helper()
	synctest.Wait()
	got, err := c.Certificate()
	if err != nil || !got.Leaf.Equal(want.tls.Leaf) {
		t.Errorf("%s: another certificate is served, %v", what, err)
		return
	}
	for _, bundle := range append(bundles, c.Bundle()) {
		if err := shake(c, bundle); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// mount puts files into a folder as Kubernetes does: all at once, by a link.
func mount(t *testing.T, folder, version string, files map[string][]byte) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(folder, version), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, version, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(version, filepath.Join(folder, "new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(folder, "new"), filepath.Join(folder, "now")); err != nil {
		t.Fatal(err)
	}
}

func filesOf(p *pair, a *authority) map[string][]byte {
	return map[string][]byte{"tls.crt": p.certPEM, "tls.key": p.keyPEM, "ca.crt": encodeCertificate(a.certificate.Raw)}
}

func TestFilesAreReadAgain_T165(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		path := func(name string) string { return filepath.Join(folder, "now", name) }
		c := &CertificateFiles{Cert: path("tls.crt"), Key: path("tls.key"), CA: path("ca.crt"), Log: slog.New(slog.DiscardHandler)}
		defer runUntil(t, c)()
		synctest.Wait()
		if _, err := c.Certificate(); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("without files: %v", err)
		}
		old := madeAuthority(t)
		first := made(t, old)
		mount(t, folder, "1", filesOf(first, old))
		time.Sleep(11 * time.Second)
		expect(t, c, "first", first)
		before := c.Bundle()

		second := made(t, old)
		mount(t, folder, "2", filesOf(second, old))
		time.Sleep(11 * time.Second)
		expect(t, c, "renewed by the same authority", second, before)

		if err := os.WriteFile(path("tls.key"), first.keyPEM, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		expect(t, c, "with a key that does not fit", second, before)

		other := madeAuthority(t)
		third := made(t, other)
		mount(t, folder, "3", filesOf(third, other))
		time.Sleep(11 * time.Second)
		expect(t, c, "of an authority that nobody knows yet", second, before)
		ahead := c.Bundle()
		c.Applied(ahead)
		time.Sleep(30 * time.Second)
		expect(t, c, "not known for long", second, before, ahead)
		time.Sleep(31 * time.Second)
		expect(t, c, "of an authority that all know", third, ahead)
		time.Sleep(24*time.Hour - 90*time.Second)
		if trusted, err := parseBundle(c.Bundle()); err != nil || len(trusted) != 1 {
			t.Errorf("after the end of the old one: %v, %v", subjects(trusted), err)
		}
	})
}

func TestFilesWithoutAuthority_T165(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, p := t.TempDir(), made(t, madeAuthority(t))
		mount(t, folder, "1", map[string][]byte{"tls.crt": p.certPEM, "tls.key": p.keyPEM})
		c := &CertificateFiles{Cert: filepath.Join(folder, "now/tls.crt"), Key: filepath.Join(folder, "now/tls.key")}
		defer runUntil(t, c)()
		expect(t, c, "trusted by itself", p, p.certPEM)
	})
}

func TestSecretIsFollowed_T165(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{}
		c := &CertificateSecret{Namespace: "ops", Name: "theirs", Secrets: s.client(), Log: slog.New(slog.DiscardHandler)}
		stop := runUntil(t, c)
		synctest.Wait()
		if _, err := c.Certificate(); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("without a Secret: %v", err)
		}
		old := madeAuthority(t)
		first := made(t, old)
		s.mu.Lock()
		s.set(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "theirs"}, Data: filesOf(first, old)})
		s.mu.Unlock()
		expect(t, c, "first", first)
		before := c.Bundle()
		other := madeAuthority(t)
		second := made(t, other)
		s.edit(func(data map[string][]byte) {
			for key, value := range filesOf(second, other) {
				data[key] = value
			}
		})
		expect(t, c, "of an authority that nobody knows yet", first, before)
		ahead := c.Bundle()
		time.Sleep(2 * time.Minute)
		expect(t, c, "where nobody keeps a configuration", second, ahead)
		s.edit(func(data map[string][]byte) { data["tls.key"] = []byte("garbage") })
		expect(t, c, "spoilt", second, ahead)
		s.delete()
		time.Sleep(time.Minute)
		expect(t, c, "deleted", second, ahead)
		stop()
		s.cut()
		synctest.Wait()
	})
}

func TestHealthBeforeTheEnd_T165(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, a := t.TempDir(), madeAuthority(t)
		mount(t, folder, "1", filesOf(made(t, a), a))
		c := &CertificateFiles{Cert: filepath.Join(folder, "now/tls.crt"), Key: filepath.Join(folder, "now/tls.key"), CA: filepath.Join(folder, "now/ca.crt"), Log: slog.New(slog.DiscardHandler)}
		if Healthy(c) == nil {
			t.Error("healthy without a certificate")
		}
		defer runUntil(t, c)()
		synctest.Wait()
		for _, step := range []struct {
			sleep time.Duration
			want  string
		}{{0, ""}, {21 * time.Hour, ""}, {2 * time.Hour, "nobody has renewed it"}, {2 * time.Hour, "has ended"}} {
			time.Sleep(step.sleep)
			err := Healthy(c)
			if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
				t.Errorf("after %s more: %v, expected %q", step.sleep, err, step.want)
			}
		}
	})
}
