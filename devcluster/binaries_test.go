package devcluster

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestVersionsAreThoseOfTheDefinition(t *testing.T) {
	mod, err := definition.ReadFile("controlplane/go.mod.txt")
	must(t, err)
	for _, line := range []string{
		"k8s.io/kubernetes " + KubernetesVersion,
		"go.etcd.io/etcd/server/v3 " + EtcdVersion,
	} {
		if !strings.Contains(string(mod), "\t"+line+"\n") {
			t.Errorf("controlplane/go.mod.txt does not require %s", line)
		}
	}
	sum, err := definition.ReadFile("controlplane/go.sum.txt")
	must(t, err)
	for _, module := range []string{"k8s.io/kubernetes " + KubernetesVersion, "go.etcd.io/etcd/server/v3 " + EtcdVersion} {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(module) + ` h1:`).Match(sum) {
			t.Errorf("controlplane/go.sum.txt has no checksum of %s", module)
		}
	}
}

func TestAssetsOfTheUserComeFirst(t *testing.T) {
	dir := t.TempDir()
	fakePrograms(t, dir, minor(KubernetesVersion)+".99", "v1.2.3", "")
	t.Setenv(assetsEnv, dir)
	got, err := Binaries(t.Context(), Options{Log: &testLog{t: t}})
	must(t, err)
	if got != dir {
		t.Errorf("got %s, want %s", got, dir)
	}
}

func TestAssetsThatAreMissing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(assetsEnv, dir)
	_, err := Binaries(t.Context(), Options{})
	mustFail(t, err, "no etcd and no kube-apiserver and no kubectl in "+dir, assetsEnv, "unset it")

	fakePrograms(t, dir, KubernetesVersion, EtcdVersion, "")
	must(t, os.Remove(filepath.Join(dir, apiServer)))
	_, err = Binaries(t.Context(), Options{})
	mustFail(t, err, "no kube-apiserver in "+dir)
	if strings.Contains(err.Error(), "no etcd") {
		t.Errorf("etcd is there: %v", err)
	}
}

func TestAssetsOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	fakePrograms(t, dir, "v1.28.0", EtcdVersion, "")
	t.Setenv(assetsEnv, dir)
	_, err := Binaries(t.Context(), Options{})
	mustFail(t, err, "is v1.28.0, but v1.37 is needed", "unset "+assetsEnv)

	got, err := Binaries(t.Context(), Options{AnyVersion: true})
	must(t, err)
	if got != dir {
		t.Errorf("got %s, want %s", got, dir)
	}
}

func TestAssetsThatDoNotRun(t *testing.T) {
	dir := t.TempDir()
	fakePrograms(t, dir, KubernetesVersion, EtcdVersion, "")
	t.Setenv(assetsEnv, dir)
	script(t, filepath.Join(dir, etcd), "echo cannot execute; exit 1")
	_, err := Binaries(t.Context(), Options{})
	mustFail(t, err, "etcd --version", "exit status 1", "cannot execute", "unset it")

	script(t, filepath.Join(dir, etcd), "echo hello")
	_, err = Binaries(t.Context(), Options{})
	mustFail(t, err, "names no version", "hello")
}

func TestTheCacheComesBeforeABuild(t *testing.T) {
	home := t.TempDir()
	t.Setenv(assetsEnv, "")
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("PATH", "/usr/bin:/bin")
	cache, err := os.UserCacheDir()
	must(t, err)
	dir := filepath.Join(cache, "kopf-go", "devcluster", cacheName())
	fakePrograms(t, dir, KubernetesVersion, EtcdVersion, "")
	log := &testLog{t: t}
	got, err := Binaries(t.Context(), Options{Log: log})
	must(t, err)
	if got != dir {
		t.Errorf("got %s, want %s", got, dir)
	}
	if log.String() != "" {
		t.Errorf("it said %q", log)
	}
}
