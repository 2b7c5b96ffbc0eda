package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kopf-go/kopf/devcluster"
)

// mainEnv makes this test binary the devcluster command.
const mainEnv = "DEVCLUSTER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		_ = os.Unsetenv(mainEnv)
		main()
	}
	os.Exit(m.Run())
}

const patience = time.Minute

// cli prepares the command with a folder for temporary files of its own.
func cli(t *testing.T, args ...string) (cmd *exec.Cmd, stderr *bytes.Buffer, temp string) {
	t.Helper()
	cmd, stderr, temp = exec.Command(os.Args[0], args...), new(bytes.Buffer), t.TempDir()
	cmd.Env = append(os.Environ(), mainEnv+"=1", "TMPDIR="+temp)
	cmd.Stderr = stderr
	cmd.WaitDelay = time.Second
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("standard error:\n%s", stderr)
		}
	})
	return cmd, stderr, temp
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		t.Errorf("%s is left", entry.Name())
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("still not so: %s", what)
		}
	}
}

func TestACommandSeesTheCluster(t *testing.T) {
	folder := t.TempDir()
	cmd, stderr, temp := cli(t, "-C", folder, "--", "/bin/sh", "-c",
		`pwd -P; test -r "$KUBECONFIG" && test -S "$KOPF_DEVCLUSTER_CONTROL" && test -x "$KUBEBUILDER_ASSETS/etcd" && cat && exit 7`)
	cmd.Stdin = strings.NewReader("passed on\n")
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d: %v", code, err)
	}
	folder, err = filepath.EvalSymlinks(folder)
	must(t, err)
	if want := folder + "\npassed on\n"; string(out) != want {
		t.Errorf("standard output %q, want %q", out, want)
	}
	if !strings.Contains(stderr.String(), "devcluster: the API server is ready after") {
		t.Error("it did not say that it is ready")
	}
	checkEmpty(t, temp)
}

// started starts the command and returns when what it runs has written a line.
func started(t *testing.T, cmd *exec.Cmd) (line string, out *bufio.Reader) {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	out = bufio.NewReader(pipe)
	line, err = out.ReadString('\n')
	must(t, err)
	return strings.TrimSpace(line), out
}

func TestSignalsArePassedOn(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd, _, temp := cli(t, "/bin/sh", "-c", `
				trap 'echo got INT; exit 8' INT
				trap 'echo got TERM; exit 9' TERM
				echo up
				while :; do sleep 0.05; done`)
			// No terminal: an interrupt then comes from a program.
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			_, out := started(t, cmd)
			must(t, cmd.Process.Signal(signal))
			rest, err := io.ReadAll(out)
			must(t, err)
			_ = cmd.Wait()
			want, code := "got INT\n", 8
			if signal == syscall.SIGTERM {
				want, code = "got TERM\n", 9
			}
			if string(rest) != want || cmd.ProcessState.ExitCode() != code {
				t.Errorf("standard output %q, exit code %d", rest, cmd.ProcessState.ExitCode())
			}
			checkEmpty(t, temp)
		})
	}
}

func TestCommandThatDiesOfASignal(t *testing.T) {
	cmd, _, temp := cli(t, "/bin/sh", "-c", "kill -KILL $$")
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d", code)
	}
	checkEmpty(t, temp)
}

func TestKilledByForce(t *testing.T) {
	cmd, _, temp := cli(t, "/bin/sh", "-c", "echo up; exec sleep 2")
	_, _ = started(t, cmd)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "nothing is left", func() bool {
		entries, err := os.ReadDir(temp)
		must(t, err)
		return len(entries) == 0
	})
}

func TestInterruptedStart(t *testing.T) {
	cmd, stderr, temp := cli(t, "/bin/sh", "-c", "echo the command ran")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	must(t, cmd.Start())
	eventually(t, "the start has begun", func() bool {
		dirs, err := filepath.Glob(filepath.Join(temp, "devcluster-*", "etcd.pid"))
		must(t, err)
		return len(dirs) > 0
	})
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 128+15 {
		t.Errorf("exit code %d", code)
	}
	if stdout.Len() > 0 || !strings.Contains(stderr.String(), "got the signal terminated") {
		t.Errorf("standard output %q", &stdout)
	}
	checkEmpty(t, temp)
}

func TestWithoutACluster(t *testing.T) {
	for name, test := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"version":      {[]string{"--version"}, 0, "kubernetes " + devcluster.KubernetesVersion + ", etcd " + devcluster.EtcdVersion + "\n", ""},
		"help":         {[]string{"--help"}, 0, "", "usage: devcluster"},
		"no command":   {nil, exitUsage, "", "no command to run"},
		"unknown flag": {[]string{"--nonsense"}, exitUsage, "", "not defined"},
		"not found":    {[]string{"no-such-command-at-all"}, exitNotFound, "", "not found"},
		"no folder":    {[]string{"-C", "/no/such/folder", "sh"}, exitFailed, "", "-C: stat /no/such/folder"},
		"bad argument": {[]string{"--apiserver-arg", "v", "sh"}, exitFailed, "", "write it as --name=value"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, stderr, temp := cli(t, test.args...)
			out, _ := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if string(out) != test.stdout {
				t.Errorf("standard output %q", out)
			}
			if !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("standard error does not contain %q", test.stderr)
			}
			checkEmpty(t, temp)
		})
	}
}

func TestBuildOnly(t *testing.T) {
	cmd, _, _ := cli(t, "--build-only")
	out, err := cmd.Output()
	must(t, err)
	folder, found := strings.CutSuffix(string(out), "\n")
	if !found || strings.Contains(folder, "\n") {
		t.Fatalf("standard output %q", out)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
}
