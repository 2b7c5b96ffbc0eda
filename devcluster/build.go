package devcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// packagesOfAll is roughly how many packages a build from nothing compiles; it
// scales the demand of disk space by how much is compiled already.
const packagesOfAll = 2400

// builder fills the cache folder.
type builder struct {
	base     string // the folder of all versions
	progress *progress
	volumeOf func(dir string) (volume, error)
}

func newBuilder(base string, log io.Writer) *builder {
	return &builder{
		base:     base,
		progress: &progress{out: log, every: 15 * time.Second},
		volumeOf: volumeOf,
	}
}

// binaries returns the cached folder and builds it if it is not there.
func (b *builder) binaries(ctx context.Context) (string, error) {
	dir := filepath.Join(b.base, cacheName())
	if checkBuilt(ctx, dir) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(b.base, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(b.base, "."+cacheName()+".lock"), func() {
		b.progress.printf("another process is building the control plane; waiting for it")
	})
	if err != nil {
		return "", err
	}
	defer unlock()

	// Builds that were killed; nobody else is building this version now.
	stale, err := filepath.Glob(filepath.Join(b.base, b.tempPattern()))
	if err != nil {
		return "", fmt.Errorf("find stale builds: %w", err)
	}
	for _, old := range stale {
		if err := removeStale(old); err != nil {
			return "", err
		}
	}

	err = checkBuilt(ctx, dir)
	if err == nil {
		return dir, nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if _, statErr := os.Stat(dir); statErr == nil {
		b.progress.printf("building again what is not usable: %v", err)
	}
	return dir, b.build(ctx, dir)
}

func (b *builder) tempPattern() string {
	return ".building-" + cacheName() + "-*"
}

// removeStale removes what a killed build left, and ends its go command if that
// still runs.
func removeStale(dir string) error {
	// The lock is ours, so the one who wrote the pid file is dead; its watchdog
	// kills the go command unless it was killed as well.
	watchdog, err := startWatchdog(dir)
	if err != nil {
		return err
	}
	// A closed pipe is what the watchdog takes for the death of its parent.
	_ = watchdog.pipe.Close()
	_ = watchdog.cmd.Wait()
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove a build that was interrupted: %w", err)
	}
	return nil
}

// build makes all programs beside dir, and moves them there when they are
// complete. The lock must be held.
func (b *builder) build(ctx context.Context, dir string) (err error) {
	temp, err := os.MkdirTemp(b.base, b.tempPattern())
	if err != nil {
		return fmt.Errorf("make a folder to build in: %w", err)
	}
	dog, err := startWatchdog(temp)
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	defer func() {
		if removeErr := os.RemoveAll(temp); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("remove the build folder: %w", removeErr))
		}
		err = errors.Join(err, dog.dismiss())
	}()

	g := &goCommand{temp: temp, module: filepath.Join(temp, "module"), progress: b.progress}
	out := filepath.Join(temp, "bin")
	for _, sub := range []string{g.module, out} {
		if err := os.Mkdir(sub, 0o755); err != nil {
			return fmt.Errorf("make a folder to build in: %w", err)
		}
	}
	if err := writeDefinition(g.module); err != nil {
		return err
	}
	if err := b.compile(ctx, g, out); err != nil {
		return err
	}
	if err := checkBuilt(ctx, out); err != nil {
		return fmt.Errorf("check what was built: %w", err)
	}
	return publish(out, dir, filepath.Join(temp, "old"))
}

// compile builds all programs into out.
func (b *builder) compile(ctx context.Context, g *goCommand, out string) error {
	if err := g.configure(ctx); err != nil {
		return err
	}
	needs := map[string]uint64{b.base: spaceBinaries}
	if _, err := os.Stat(filepath.Join(g.modCache, "k8s.io", "kubernetes@"+KubernetesVersion)); err != nil {
		needs[b.base] += spaceWork
		needs[g.modCache] += spaceModules
		needs[g.buildCache] += spaceCompiled
	}
	if err := checkSpace(needs, b.volumeOf); err != nil {
		return err
	}

	b.progress.printf("building etcd %s, kube-apiserver and kubectl %s from their Go modules into %s", EtcdVersion, KubernetesVersion, b.base)
	b.progress.printf("this happens once; it takes about 10 minutes on two cores if nothing is compiled yet")
	stop := b.progress.report()
	defer stop()
	for _, p := range programs {
		b.progress.begin(p.name)
		pending, err := g.pending(ctx, p)
		if err != nil {
			return fmt.Errorf("prepare the build of %s: %w", p.name, err)
		}
		share := uint64(len(pending))
		needs = map[string]uint64{
			b.base:       spaceBinaries + spaceWork*share/packagesOfAll,
			g.buildCache: spaceCompiled * share / packagesOfAll,
		}
		if err := checkSpace(needs, b.volumeOf); err != nil {
			return err
		}
		b.progress.expect(pending)
		if err := g.build(ctx, p, filepath.Join(out, p.name)); err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
	}
	b.progress.mu.Lock()
	defer b.progress.mu.Unlock()
	b.progress.print(fmt.Sprintf("built them in %s", b.progress.elapsed()))
	return nil
}

// publish moves a complete folder to its place, so that dir never is
// half-filled, not even after a power cut.
func publish(from, dir, old string) error {
	for _, p := range programs {
		if err := syncPath(filepath.Join(from, p.name)); err != nil {
			return err
		}
	}
	if err := syncPath(from); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("move the unusable programs away: %w", err)
	}
	if err := os.Rename(from, dir); err != nil {
		return fmt.Errorf("move the programs to their place: %w", err)
	}
	return syncPath(filepath.Dir(dir))
}

func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("write the programs to the disk: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write %s to the disk: %w", path, err)
	}
	return nil
}

// goCommand runs the go command in the module of the control plane.
type goCommand struct {
	temp     string
	module   string
	progress *progress

	path       string
	modCache   string
	buildCache string
	flags      string // for GOFLAGS
}

// configure finds the go command and its caches.
func (g *goCommand) configure(ctx context.Context) error {
	path, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("find the go command: %w; install Go, or set %s to a folder with ready-made programs", err, assetsEnv)
	}
	g.path = path

	var env struct{ GOMODCACHE, GOCACHE, GOFLAGS string }
	text, err := g.run(ctx, "env", "-json", "GOMODCACHE", "GOCACHE", "GOFLAGS")
	if err != nil {
		return fmt.Errorf("ask the go command for its caches: %w", err)
	}
	if err := json.Unmarshal(text, &env); err != nil {
		return fmt.Errorf("ask the go command for its caches: %w", err)
	}
	g.modCache, g.buildCache = env.GOMODCACHE, env.GOCACHE

	// Flags of the user, such as -mod=vendor, -race or -tags, belong to other
	// modules. The value must not be empty: then the go command takes the one
	// that "go env -w" has stored.
	g.flags = "-mod=readonly"
	for flag := range strings.FieldsSeq(env.GOFLAGS) {
		if strings.TrimLeft(flag, "-") == "modcacherw" {
			g.flags += " -modcacherw"
		}
	}
	return nil
}

// pending names the packages that must still be compiled for a program. It
// downloads the modules that are missing.
func (g *goCommand) pending(ctx context.Context, p program) ([]string, error) {
	const format = "{{if .Stale}}{{.ImportPath}} {{.StaleReason}}{{end}}"
	text, err := g.run(ctx, "list", "-trimpath", "-deps", "-f", format, p.pkg)
	if err != nil {
		return nil, err
	}
	var packages []string
	for line := range strings.Lines(string(text)) {
		pkg, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pkg != "" && !strings.Contains(reason, "available in build cache") {
			packages = append(packages, pkg)
		}
	}
	return packages, nil
}

func (g *goCommand) build(ctx context.Context, p program, binary string) error {
	// The cache folder may lie below somebody's version-controlled home.
	_, err := g.run(ctx, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", p.ldflags, "-o", binary, p.pkg)
	return err
}

// run runs a subcommand of go and returns its standard output.
func (g *goCommand) run(ctx context.Context, subcommand string, args ...string) ([]byte, error) {
	script := launchScript(g.temp, "go") + `exec "$@"`
	shell := []string{"-c", script, "devcluster", g.path, "-C", g.module, subcommand}
	cmd := exec.CommandContext(ctx, "/bin/sh", append(shell, args...)...)
	cmd.Env = g.environ()
	// A group of its own: a Ctrl-C reaches us, and we end the whole group in
	// order. The go command removes its work files when it is interrupted.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second

	reader, writer := io.Pipe()
	cmd.Stderr = writer
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			g.progress.goLine(lines.Text())
		}
		_, _ = io.Copy(io.Discard, reader) // after a line that is too long
	}()
	out, err := cmd.Output()
	_ = writer.Close()
	<-read
	if ctx.Err() != nil {
		// What did not end in time; nobody is left to be asked.
		_ = signalGroup(g.temp, "go", syscall.SIGKILL)
		return nil, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", subcommand, err, g.progress.said())
	}
	return out, nil
}

// environ is the user's environment (proxies, caches, credentials) without what
// would change the outcome of the build.
func (g *goCommand) environ() []string {
	dropped := map[string]bool{
		"GOFLAGS": g.flags != "", "GOWORK": true, "GO111MODULE": true,
		"GOOS": true, "GOARCH": true, "CGO_ENABLED": true, "GOTMPDIR": true,
	}
	var env []string
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !dropped[name] {
			env = append(env, variable)
		}
	}
	env = append(env,
		"GOWORK=off", "GO111MODULE=on",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH,
		// No C compiler is needed then, and all machines build the same.
		"CGO_ENABLED=0",
		// What a killed compiler or linker leaves goes away with the folder.
		"GOTMPDIR="+g.temp,
	)
	if g.flags != "" {
		env = append(env, "GOFLAGS="+g.flags)
	}
	return env
}
