package devcluster

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How nothing is left behind, even when this process dies by SIGKILL:
//
// Everything a cluster (or a build) owns lives in one folder. Each process that
// it starts leads a process group and writes its id to <folder>/<name>.pid
// before it becomes the real program (see the launch scripts). A watchdog, a
// small shell of its own session, holds the read end of a pipe. The kernel
// closes the write end when this process ends in whatever way; the watchdog
// then kills what the pid files name, and removes the folder.
//
// It is a shell because a library cannot re-execute the program it is linked
// into without taking over that program's start, and because the parent-death
// signal of Linux is bound to a thread and unknown elsewhere.

// dyingName marks a folder whose processes are being killed. A launch script
// looks for it after it has written its pid file and the watchdog writes it
// before it reads them, so one of the two always sees the other.
const dyingName = "dying"

const watchdogScript = `
trap '' INT TERM HUP QUIT
read -r word
[ "$word" = done ] && exit 0
: >"$1/` + dyingName + `"
# A process id may have been given to somebody else since; all processes of the
# folder name it in their arguments.
ours() {
	if [ -r /proc/self/cmdline ]; then
		line=$(tr '\0' ' ' <"/proc/$1/cmdline")
	else
		line=$(ps -o args= -p "$1")
	fi
	case $line in *"$2"*) return 0 ;; esac
	return 1
}
for file in "$1"/*.pid; do
	pid=$(cat "$file")
	[ -n "$pid" ] || continue
	ours "$pid" "$1" || continue
	kill -s KILL -- "-$pid"
	tries=0
	while kill -s 0 -- "-$pid" && [ $tries -lt 50 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
done
tries=0
until rm -rf "$1" || [ $tries -ge 50 ]; do
	sleep 0.1
	tries=$((tries + 1))
done
`

// watchdog cleans a folder up when this process does not come to it.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func startWatchdog(dir string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "devcluster-watchdog", dir)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	// A session of its own: what a terminal or a test runner sends to our
	// process group must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

// dismiss tells the watchdog that all is cleaned up, and waits for its end.
func (w *watchdog) dismiss() error {
	_, writeErr := io.WriteString(w.pipe, "done\n")
	_ = w.pipe.Close()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("dismiss the watchdog: %w", err)
	}
	return writeErr
}

// launchScript is the body of a shell script that notes its own process id as
// that of name in dir, and becomes the real program.
func launchScript(dir, name string) string {
	pid := shellQuote(filepath.Join(dir, name+".pid"))
	dying := shellQuote(filepath.Join(dir, dyingName))
	return "echo $$ >" + pid + " || exit 1\n[ -e " + dying + " ] && exit 1\n"
}

// writeLauncher writes an executable into dir that runs binary as name.
func writeLauncher(dir, name, binary string) (string, error) {
	path := filepath.Join(dir, name)
	text := "#!/bin/sh\n" +
		// envtest asks for the help first; that is not the process to watch.
		"case $1 in --help) exec " + shellQuote(binary) + " \"$@\" ;; esac\n" +
		launchScript(dir, name) +
		"exec " + shellQuote(binary) + " \"$@\"\n"
	// A child that another goroutine forks meanwhile would inherit the open
	// file, and executing it would fail with "text file busy".
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		return "", fmt.Errorf("write the launcher of %s: %w", name, err)
	}
	return path, nil
}

func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// markDying keeps launch scripts of dir from starting anything more.
func markDying(dir string) error {
	return os.WriteFile(filepath.Join(dir, dyingName), nil, 0o600)
}

// pidOf returns the process id that name wrote into dir, or 0.
func pidOf(dir, name string) int {
	text, err := os.ReadFile(filepath.Join(dir, name+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// signalGroup sends a signal to the process group that name leads. It is no
// error if there is none.
func signalGroup(dir, name string, signal syscall.Signal) error {
	pid := pidOf(dir, name)
	if pid <= 1 { // 0 and -1 would mean groups of others
		return nil
	}
	if err := syscall.Kill(-pid, signal); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("send %s to %s (process %d): %w", signal, name, pid, err)
	}
	return nil
}

// running tells whether name's process exists.
func running(dir, name string) bool {
	pid := pidOf(dir, name)
	return pid > 1 && syscall.Kill(-pid, 0) == nil
}

// poll calls done every few milliseconds until it returns true or the time is
// over, and returns what done said last.
func poll(limit time.Duration, done func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			return done()
		}
	}
	return true
}
