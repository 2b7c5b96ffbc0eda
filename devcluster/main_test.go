package devcluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// roleEnv makes this test binary play a process that a test can kill.
const (
	roleEnv = "DEVCLUSTER_TEST_ROLE"
	baseEnv = "DEVCLUSTER_TEST_BASE"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "cluster":
		c, err := Start(context.Background(), Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.dir)
		select {} // until killed
	case "build":
		dir, err := newBuilder(os.Getenv(baseEnv), os.Stderr).binaries(context.Background())
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(dir)
	default:
		goleak.VerifyTestMain(m)
	}
}

// patience is how long tests wait for what must happen, on a slow machine too.
const patience = time.Minute

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	if !poll(patience, done) {
		t.Fatalf("still not so: %s", what)
	}
}

// startRole starts this test binary in a role; killed at the end of the test.
func startRole(t *testing.T, role string, env ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	cmd.Stderr = &testLog{t: t}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

func readLine(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	line, err := from.ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustFail(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}

// testLog writes into the test's log, and remembers.
type testLog struct {
	t    *testing.T
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *testLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("%s", bytes.TrimRight(text, "\n"))
	return l.text.Write(text)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// script writes an executable shell script.
func script(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	// See writeLauncher.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
}

// fakePrograms writes programs that report these versions, and otherwise run
// the shell text.
func fakePrograms(t *testing.T, dir, kubernetes, etcdVersion, text string) {
	t.Helper()
	for name, version := range map[string]string{
		apiServer: "Kubernetes " + kubernetes,
		etcd:      "etcd Version: " + strings.TrimPrefix(etcdVersion, "v"),
		kubectl:   "Client Version: " + kubernetes,
	} {
		script(t, filepath.Join(dir, name), "case $1 in --version|version) echo '"+version+"'; exit 0 ;; --help) exit 0 ;; esac\n"+text)
	}
}

// gone tells whether a process does not run any more; a zombie that waits for
// its new parent does not run.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return os.IsNotExist(err) && exists("/proc/self")
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
