// Command devcluster runs a command against a real Kubernetes control plane
// that lives as long as the command:
//
//	devcluster -- go test ./...
//
// See the README of the module.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kopf-go/kopf/devcluster"
)

// Exit codes of our own, as of other programs that run programs; else the
// command's code is passed on, or 128 plus the number of the signal that ended it.
const (
	exitUsage    = 2
	exitFailed   = 125
	exitNotFound = 127
)

const usage = `usage: devcluster [flags] [--] command [argument ...]

Runs the command while a Kubernetes control plane (etcd and kube-apiserver) is
up, with KUBECONFIG, KOPF_DEVCLUSTER_CONTROL and KUBEBUILDER_ASSETS set for it,
and exits with the command's exit code. Our own messages go to standard error.
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

type flags struct {
	dir       string
	buildOnly bool
	version   bool
	verbose   bool
	options   devcluster.Options
}

func parse(args []string, stderr io.Writer) (f flags, command []string, err error) {
	set := flag.NewFlagSet("devcluster", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		_, _ = fmt.Fprint(stderr, usage, "\nflags:\n")
		set.PrintDefaults()
	}
	set.StringVar(&f.dir, "C", "", "run the command in this `folder`")
	set.BoolVar(&f.buildOnly, "build-only", false, "only find or build the programs, print their folder, and exit")
	set.BoolVar(&f.version, "version", false, "print the versions of the control plane, and exit")
	set.BoolVar(&f.verbose, "v", false, "copy the logs of etcd and kube-apiserver to standard error")
	set.BoolVar(&f.options.AnyVersion, "any-version", false, "accept any version in the folder that KUBEBUILDER_ASSETS names")
	set.IntVar(&f.options.Port, "port", 0, "let the API server listen on this `port` of 127.0.0.1 (default: a free one)")
	set.DurationVar(&f.options.StartTimeout, "start-timeout", time.Minute, "how long each process may take until it is ready")
	set.Func("apiserver-arg", "pass this `--name=value` to kube-apiserver; can be repeated", func(value string) error {
		f.options.APIServerArgs = append(f.options.APIServerArgs, value)
		return nil
	})
	if err := set.Parse(args); err != nil {
		return f, nil, err
	}
	f.options.Log = stderr
	if f.verbose {
		f.options.Output = stderr
	}
	if !f.version && !f.buildOnly && set.NArg() == 0 {
		err := errors.New("no command to run")
		_, _ = fmt.Fprintf(stderr, "devcluster: %v\n", err)
		set.Usage()
		return f, nil, err
	}
	return f, set.Args(), nil
}

// run is main with an exit code, so that deferred calls are made.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	f, command, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	if f.version {
		_, _ = fmt.Fprintf(stdout, "kubernetes %s, etcd %s\n", devcluster.KubernetesVersion, devcluster.EtcdVersion)
		return 0
	}
	fail := func(code int, err error) int {
		_, _ = fmt.Fprintf(stderr, "devcluster: %v\n", err)
		return code
	}

	// Room for several: while the cluster starts or stops, nobody reads.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	if f.buildOnly {
		var folder string
		caught, err := untilSignal(signals, func(ctx context.Context) (err error) {
			folder, err = devcluster.Binaries(ctx, f.options)
			return err
		})
		if err != nil {
			return fail(exitCode(caught, exitFailed), err)
		}
		_, _ = fmt.Fprintln(stdout, folder)
		return 0
	}

	// What is wrong with the command is said before the minutes of a build.
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = f.dir
	if cmd.Err != nil {
		return fail(exitNotFound, cmd.Err)
	}
	if f.dir != "" {
		if info, err := os.Stat(f.dir); err != nil {
			return fail(exitFailed, fmt.Errorf("-C: %w", err))
		} else if !info.IsDir() {
			return fail(exitFailed, fmt.Errorf("-C: %s is not a folder", f.dir))
		}
	}

	var cluster *devcluster.Cluster
	begin := time.Now()
	caught, err := untilSignal(signals, func(ctx context.Context) (err error) {
		cluster, err = devcluster.Start(ctx, f.options)
		return err
	})
	if err != nil {
		return fail(exitCode(caught, exitFailed), err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			_ = fail(0, err)
			if code == 0 {
				code = exitFailed
			}
		}
	}()
	if caught != nil { // it came when the start was over
		return exitCode(caught, exitFailed)
	}
	_, _ = fmt.Fprintf(stderr, "devcluster: the API server is ready after %s at %s\n",
		time.Since(begin).Round(100*time.Millisecond), cluster.Config().Host)

	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Env = append(cmd.Environ(), cluster.Env()...)
	if err := cmd.Start(); err != nil {
		return fail(exitNotFound, err)
	}
	return wait(cmd, signals, fail)
}

// untilSignal runs do with a context that the first signal cancels, and returns
// that signal.
func untilSignal(signals <-chan os.Signal, do func(context.Context) error) (os.Signal, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	select {
	case err := <-done:
		return nil, err
	case caught := <-signals:
		cancel(fmt.Errorf("got the signal %s", caught))
		return caught, <-done
	}
}

// exitCode is the shell's code for a signal, or the other one if there was none.
func exitCode(caught os.Signal, other int) int {
	if number, ok := caught.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return other
}

// wait passes signals on until the command ends.
func wait(cmd *exec.Cmd, signals <-chan os.Signal, fail func(int, error) int) int {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case caught := <-signals:
			if caught == os.Interrupt && fromTerminal() {
				continue
			}
			// An error means that it has just ended.
			_ = cmd.Process.Signal(caught)
		case err := <-done:
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				if err != nil {
					return fail(exitFailed, err)
				}
				return 0
			}
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return 128 + int(status.Signal())
			}
			return exit.ExitCode()
		}
	}
}

// fromTerminal tells whether an interrupt was most likely typed: a terminal
// sends it to the whole group in its foreground, so the command has it already,
// and many programs take a second one as the order to die at once.
func fromTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer func() { _ = tty.Close() }()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
