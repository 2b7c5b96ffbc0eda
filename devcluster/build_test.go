package devcluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeGo is a go command that "builds" scripts. What it was asked goes to
// $FAKE_GO_LOG, with the variables that matter. While $FAKE_GO_HANG names a
// file, a build creates that file and hangs.
var fakeGo = `
shift 2 # -C folder
sub=$1
shift
echo "$sub CGO_ENABLED=$CGO_ENABLED GOWORK=$GOWORK GOFLAGS=$GOFLAGS" >>"$FAKE_GO_LOG"
case $sub in
env)
	echo "{\"GOMODCACHE\":\"$HOME/mod\",\"GOCACHE\":\"$HOME/build\",\"GOFLAGS\":\"-mod=vendor -modcacherw\"}"
	exit 0
	;;
list)
	echo "go: downloading example.com/module v1.0.0" >&2
	echo "example.com/module build ID mismatch"
	echo "example.com/cached not installed but available in build cache"
	exit 0
	;;
esac
[ -n "$FAKE_GO_FAIL" ] && { echo "main.go:1:1: no luck" >&2; exit 1; }
echo example.com/module >&2
while [ "$1" != -o ]; do shift; done
echo half >"$2"
if [ -n "$FAKE_GO_HANG" ]; then
	: >"$FAKE_GO_HANG"
	sleep 1000
fi
case $2 in
*/kubectl) line="Client Version: ` + KubernetesVersion + `" ;;
*/etcd) line="etcd Version: ` + EtcdVersion[1:] + `" ;;
*) line="Kubernetes ` + KubernetesVersion + `" ;;
esac
printf '#!/bin/sh\necho "%s"\n' "$line" >"$2"
chmod 755 "$2"
`

// withFakeGo prepares a cache folder and a fake go command for this test and
// the processes it starts.
func withFakeGo(t *testing.T) (base, log string) {
	t.Helper()
	home := t.TempDir()
	script(t, filepath.Join(home, "bin", "go"), fakeGo)
	log = filepath.Join(home, "go.log")
	t.Setenv("HOME", home)
	t.Setenv("PATH", filepath.Join(home, "bin")+":/usr/bin:/bin")
	t.Setenv("FAKE_GO_LOG", log)
	t.Setenv("GOFLAGS", "-mod=vendor")
	base = filepath.Join(home, "cache")
	t.Setenv(baseEnv, base)
	return base, log
}

func builds(t *testing.T, log string) int {
	t.Helper()
	text, err := os.ReadFile(log)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	must(t, err)
	return strings.Count(string(text), "build ")
}

// leftovers are the names in the cache folder that a build must not leave.
func leftovers(t *testing.T, base string) []string {
	t.Helper()
	entries, err := os.ReadDir(base)
	must(t, err)
	var names []string
	for _, e := range entries {
		if e.Name() != cacheName() && !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestBuildOnce(t *testing.T) {
	base, log := withFakeGo(t)
	said := &testLog{t: t}
	b := newBuilder(base, said)
	for range 2 {
		dir, err := b.binaries(t.Context())
		must(t, err)
		if dir != filepath.Join(base, cacheName()) {
			t.Errorf("built into %s", dir)
		}
		must(t, checkBuilt(t.Context(), dir))
	}
	if n := builds(t, log); n != len(programs) {
		t.Errorf("%d builds", n)
	}
	if names := leftovers(t, base); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
	for _, part := range []string{"etcd " + EtcdVersion, "this happens once", "about 10 minutes", "downloading", "built them in"} {
		if !strings.Contains(said.String(), part) {
			t.Errorf("it did not say %q", part)
		}
	}
	text, err := os.ReadFile(log)
	must(t, err)
	if !strings.Contains(string(text), "build CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly -modcacherw\n") {
		t.Errorf("the go command was called with\n%s", text)
	}
}

func TestBuildReplacesWhatIsNotUsable(t *testing.T) {
	base, log := withFakeGo(t)
	dir := filepath.Join(base, cacheName())
	fakePrograms(t, dir, "v1.2.3", EtcdVersion, "")
	said := &testLog{t: t}
	_, err := newBuilder(base, said).binaries(t.Context())
	must(t, err)
	must(t, checkBuilt(t.Context(), dir))
	if builds(t, log) != len(programs) || !strings.Contains(said.String(), "is v1.2.3 instead of "+KubernetesVersion) {
		t.Errorf("it said %q", said)
	}
	if names := leftovers(t, base); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

func TestBuildThatFails(t *testing.T) {
	base, _ := withFakeGo(t)
	t.Setenv("FAKE_GO_FAIL", "1")
	_, err := newBuilder(base, &testLog{t: t}).binaries(t.Context())
	mustFail(t, err, "build etcd: go build: exit status 1", "main.go:1:1: no luck")
	if names := leftovers(t, base); len(names) > 0 || exists(filepath.Join(base, cacheName())) {
		t.Errorf("left behind: %q", names)
	}
}

func TestBuildThatIsInterrupted(t *testing.T) {
	base, log := withFakeGo(t)
	hung := filepath.Join(t.TempDir(), "hung")
	t.Setenv("FAKE_GO_HANG", hung)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := newBuilder(base, &testLog{t: t}).binaries(ctx)
		done <- err
	}()
	eventually(t, "the build hangs", func() bool { return exists(hung) })
	pid := buildPID(t, base)
	cancel(errors.New("the user is tired"))
	mustFail(t, <-done, "interrupted", "the user is tired")
	eventually(t, "the go command is gone", func() bool { return gone(pid) })
	if names := leftovers(t, base); len(names) > 0 || exists(filepath.Join(base, cacheName())) {
		t.Errorf("left behind: %q", names)
	}

	t.Setenv("FAKE_GO_HANG", "")
	_, err := newBuilder(base, &testLog{t: t}).binaries(t.Context())
	must(t, err)
	if n := builds(t, log); n != 1+len(programs) {
		t.Errorf("%d builds", n)
	}
}

// buildPID finds the go command of the only build in base.
func buildPID(t *testing.T, base string) int {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(base, ".building-*"))
	must(t, err)
	if len(dirs) != 1 {
		t.Fatalf("builds: %q", dirs)
	}
	return pidOf(dirs[0], "go")
}

func TestBuildThatIsKilled(t *testing.T) {
	base, _ := withFakeGo(t)
	hung := filepath.Join(t.TempDir(), "hung")
	cmd, _ := startRole(t, "build", "FAKE_GO_HANG="+hung)
	eventually(t, "the build hangs", func() bool { return exists(hung) })
	pid := buildPID(t, base)
	must(t, cmd.Process.Kill())
	// The watchdog does not even need a next run for it.
	eventually(t, "the go command is gone", func() bool { return gone(pid) })
	eventually(t, "nothing is left", func() bool { return len(leftovers(t, base)) == 0 })
	if exists(filepath.Join(base, cacheName())) {
		t.Error("half a build is in its place")
	}
	dir, err := newBuilder(base, &testLog{t: t}).binaries(t.Context())
	must(t, err)
	must(t, checkBuilt(t.Context(), dir))
}

func TestBuildThatWasKilledWithItsWatchdog(t *testing.T) {
	base, _ := withFakeGo(t)
	// As after a power cut.
	stale := filepath.Join(base, strings.Replace(newBuilder(base, nil).tempPattern(), "*", "123", 1))
	must(t, os.MkdirAll(filepath.Join(stale, "bin"), 0o755))
	must(t, os.WriteFile(filepath.Join(stale, "bin", etcd), []byte("half"), 0o755))
	// The process that has the number now is not ours to kill.
	must(t, os.WriteFile(filepath.Join(stale, "go.pid"), []byte("1\n"), 0o644))
	_, err := newBuilder(base, &testLog{t: t}).binaries(t.Context())
	must(t, err)
	if names := leftovers(t, base); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

func TestTwoProcessesBuildOnce(t *testing.T) {
	base, log := withFakeGo(t)
	hung := filepath.Join(t.TempDir(), "hung")
	first, _ := startRole(t, "build", "FAKE_GO_HANG="+hung)
	eventually(t, "the first builds", func() bool { return exists(hung) })

	said := &testLog{t: t}
	second := make(chan error, 1)
	go func() {
		_, err := newBuilder(base, said).binaries(t.Context())
		second <- err
	}()
	eventually(t, "the second waits", func() bool { return strings.Contains(said.String(), "another process is building") })
	if n := builds(t, log); n != 1 {
		t.Fatalf("%d builds", n)
	}
	// The lock of a process that is killed is free.
	must(t, first.Process.Kill())
	must(t, <-second)

	_, out := startRole(t, "build")
	if line := readLine(t, out); line != filepath.Join(base, cacheName()) {
		t.Errorf("the third said %q", line)
	}
	if n := builds(t, log); n != 1+len(programs) {
		t.Errorf("%d builds", n)
	}
}

func TestManyProcessesAtOnceBuildOnce(t *testing.T) {
	base, log := withFakeGo(t)
	var lines []string
	for range 4 {
		_, out := startRole(t, "build")
		defer func() { lines = append(lines, readLine(t, out)) }()
	}
	_, err := newBuilder(base, &testLog{t: t}).binaries(t.Context())
	must(t, err)
	if n := builds(t, log); n != len(programs) {
		t.Errorf("%d builds", n)
	}
}

func TestWaitingForAnotherBuildCanBeInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path, nil)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = lockFile(ctx, path, cancel)
	mustFail(t, err, "wait for another build", "canceled")
	unlock()
	unlock, err = lockFile(t.Context(), path, func() { t.Error("it is free") })
	must(t, err)
	unlock()
}

func TestBuildWithoutDiskSpace(t *testing.T) {
	base, log := withFakeGo(t)
	b := newBuilder(base, &testLog{t: t})
	b.volumeOf = func(string) (volume, error) { return volume{id: 1, free: 1e9}, nil }
	_, err := b.binaries(t.Context())
	mustFail(t, err, "not enough disk space", "about 7.5 GB", "1.0 GB are free", assetsEnv)
	if n := builds(t, log); n != 0 {
		t.Errorf("%d builds", n)
	}
	if names := leftovers(t, base); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

func TestCompiledPackagesNeedNoSpace(t *testing.T) {
	base, _ := withFakeGo(t)
	must(t, os.MkdirAll(filepath.Join(os.Getenv("HOME"), "mod", "k8s.io", "kubernetes@"+KubernetesVersion), 0o755))
	b := newBuilder(base, &testLog{t: t})
	b.volumeOf = func(string) (volume, error) { return volume{id: 1, free: 1e9}, nil }
	_, err := b.binaries(t.Context())
	must(t, err)
}

func TestSpaceIsCountedPerVolume(t *testing.T) {
	needs := map[string]uint64{"/a": 2e9, "/b": 2e9, "/c": 3e9}
	volumes := map[string]volume{"/a": {1, 35e8}, "/b": {1, 35e8}, "/c": {2, 3e9}}
	of := func(dir string) (volume, error) { return volumes[dir], nil }
	mustFail(t, checkSpace(needs, of), "about 4.0 GB in /a, /b, where 3.5 GB are free")
	delete(needs, "/b")
	must(t, checkSpace(needs, of))
}

func TestVolumeOfAFolderThatIsNotThereYet(t *testing.T) {
	dir := t.TempDir()
	want, err := volumeOf(dir)
	must(t, err)
	got, err := volumeOf(filepath.Join(dir, "a", "b"))
	must(t, err)
	if got.id != want.id || got.free == 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNoGoCommand(t *testing.T) {
	base, _ := withFakeGo(t)
	t.Setenv("PATH", t.TempDir())
	_, err := newBuilder(base, &testLog{t: t}).binaries(t.Context())
	mustFail(t, err, "find the go command", "install Go", assetsEnv)
}

func TestProgress(t *testing.T) {
	said := &testLog{t: t}
	p := &progress{out: said, every: time.Millisecond}
	stop := p.report()
	defer func() { stop() }()
	see := func(pattern string) {
		t.Helper()
		r := regexp.MustCompile(`(?m)^devcluster: ` + pattern + `$`)
		eventually(t, pattern, func() bool { return r.MatchString(said.String()) })
	}
	p.begin(apiServer)
	see(`kube-apiserver: finding out what to compile \(\d+s\)`)
	p.goLine("go: downloading k8s.io/api v1.0.0")
	p.goLine("go: downloading k8s.io/kubernetes v1.0.0")
	see(`kube-apiserver: 1 modules downloaded, now k8s.io/kubernetes v1.0.0 \(\d+s\)`)
	p.expect([]string{"a", "b"})
	see(`kube-apiserver: 2 packages to compile \(\d+s\)`)
	p.goLine("a")
	p.goLine("a")
	p.goLine("# b")
	see(`kube-apiserver: 1 of 2 packages compiled \(\d+s\)`)
	p.goLine("b")
	see(`kube-apiserver: all packages compiled, linking \(\d+s\)`)
	if p.said() != "# b" {
		t.Errorf("messages: %q", p.said())
	}
}

func TestLaunchersRespectTheDying(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with 'quotes' and spaces")
	must(t, os.Mkdir(dir, 0o755))
	real := filepath.Join(dir, "real")
	script(t, real, "echo $$ >>"+shellQuote(dir+"/ran"))
	launcher, err := writeLauncher(dir, etcd, real)
	must(t, err)
	run := func() error {
		process, err := os.StartProcess(launcher, []string{launcher}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
		must(t, err)
		state, err := process.Wait()
		must(t, err)
		if !state.Success() {
			return errors.New(state.String())
		}
		return nil
	}
	must(t, run())
	ran, err := os.ReadFile(dir + "/ran")
	must(t, err)
	pid, err := os.ReadFile(filepath.Join(dir, etcd+".pid"))
	must(t, err)
	if string(pid) != string(ran) {
		t.Errorf("noted %q, ran as %q", pid, ran)
	}
	must(t, markDying(dir))
	mustFail(t, run(), "exit status 1")
}
