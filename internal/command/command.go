// Package command is the command line of an operator: commands, flags, environment
// variables and exit codes, with the names that they have in Kopf. It knows no operator;
// the root gives it the functions to call.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kopf-go/kopf/internal/registry"
	"github.com/kopf-go/kopf/settings"
)

// Program is what commands do. A command whose function is nil is not offered.
type Program struct {
	// Name is that of the executable.
	Name string
	// Settings are what the program has chosen itself. Flags and variables prevail.
	Settings settings.Settings
	// CheckNamespace tells what is wrong with a pattern of namespaces.
	CheckNamespace func(string) error

	Run       func(context.Context, Invocation) error
	Handlers  func() ([]*registry.Handler, error)
	Manifests func(context.Context, io.Writer, Invocation, ManifestsOptions) error
	Freeze    func(context.Context, io.Writer, Invocation, FreezeOptions) error
	Resume    func(context.Context, io.Writer, Invocation, ResumeOptions) error
	Uninstall func(context.Context, io.Writer, Invocation, UninstallOptions) error
	Why       func(context.Context, io.Writer, WhyOptions) error
}

// Exit codes (EXT-8). A second signal ends the process with 128 and its number.
const (
	OK     = 0
	Failed = 1
	Usage  = 2
	Late   = 137 // it took too long to stop (EXT-7); as if by SIGKILL
)

// Mistakes are errors that begin with the place where they were made, and are shown
// as they are.
type Mistakes struct{ Err error }

func (m Mistakes) Error() string { return m.Err.Error() }

// Unwrap returns the errors.
func (m Mistakes) Unwrap() error { return m.Err }

// failure is an error of what a command does. All others are about how it was called.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// Main does what a command line says, and returns the code to exit with. Signals end the
// context of what it does; from the second one on, the process ends in any case.
func Main(p Program, args []string, out, stderr io.Writer) int {
	c := newCommands(p, os.LookupEnv)
	ctx, stop := signalled(stderr, os.Exit)
	defer stop()
	return c.main(ctx, args, out, stderr)
}

func (c *commands) main(ctx context.Context, args []string, out, stderr io.Writer) int {
	root := c.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	called, err := root.ExecuteContextC(ctx)
	var failed *failure
	var mistakes Mistakes
	switch {
	case err == nil:
		return OK
	case errors.As(err, &mistakes):
		fmt.Fprintln(stderr, mistakes.Err)
		return Failed
	case errors.As(err, &failed):
		fmt.Fprintln(stderr, "error:", failed.error)
		return Failed
	}
	for line := range strings.SplitSeq(strings.TrimSpace(err.Error()), "\n") {
		fmt.Fprintln(stderr, "error:", line)
	}
	fmt.Fprintf(stderr, "\nUsage:\n  %s\n\n%s --help says more.\n", called.UseLine(), called.CommandPath())
	return Usage
}

// root is the program with all its commands (CLI-1). Without one, it runs.
func (c *commands) root() *cobra.Command {
	root := c.runCommand()
	root.Use = c.Name
	root.Short = ""
	root.Long = fmt.Sprintf("%s is a Kubernetes operator. Without a command, it runs.", c.Name)
	root.Version = buildVersion()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.AddCommand(c.runCommand(), c.handlersCommand(), c.versionCommand())
	if c.Manifests != nil {
		root.AddCommand(c.manifestsCommand())
	}
	if c.Freeze != nil {
		root.AddCommand(c.freezeCommand())
	}
	if c.Resume != nil {
		root.AddCommand(c.resumeCommand())
	}
	if c.Uninstall != nil {
		root.AddCommand(c.uninstallCommand())
	}
	if c.Why != nil {
		root.AddCommand(c.whyCommand())
	}
	c.usages(root)
	return root
}

// runCommand is run, and the program without a command (CLI-4).
func (c *commands) runCommand() *cobra.Command {
	cmd := c.command("run", "Handle objects until SIGINT or SIGTERM", func(ctx context.Context, _ io.Writer, i Invocation) error {
		return c.Run(ctx, i)
	})
	c.scopeFlags(cmd, envRun)
	c.connectionFlags(cmd, envRun)
	c.operatorFlags(cmd)
	c.loggingFlags(cmd, envRun)
	c.settingsFlags(cmd)
	return cmd
}

// command makes a command without arguments. Do gets what flags and variables say, if
// there are no mistakes in them.
func (c *commands) command(use, short string, do func(context.Context, io.Writer, Invocation) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: none, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := c.invocation(cmd)
			if err != nil {
				return err
			}
			if err := do(cmd.Context(), cmd.OutOrStdout(), i); err != nil {
				return &failure{err}
			}
			return nil
		},
	}
}

// none refuses arguments. In Kopf, run has some: files with handlers.
func none(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasParent():
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return fmt.Errorf("there is no command %q", args[0])
}
