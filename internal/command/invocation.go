package command

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/settings"
	"github.com/kopf-go/kopf/webhook"
)

// Invocation is what flags and environment variables say, in this order of precedence,
// with the program's own settings behind them.
type Invocation struct {
	// Settings are the program's own where nothing else is said.
	Settings settings.Settings
	// Everywhere, Namespaces and NamespaceSelector say where objects are handled; with
	// none of them, the program does.
	Everywhere        bool
	Namespaces        []string
	NamespaceSelector string
	// Kubeconfig and Context are those of the connection. Default: the program's own.
	Kubeconfig, Context string
	// Log says how to log. LogClients lets in what the clients of the API say.
	Log        logging.Options
	LogClients bool
}

// commands are the commands while one of them is called. All write to the same place,
// for only one is.
type commands struct {
	Program
	environment func(string) (string, bool)
	sections    map[*cobra.Command][]*section

	called   *cobra.Command
	invoked  Invocation
	problems []error // with what was given
	choices  choices
	given    map[string]bool // paths of settings that have flags of other names
}

// choices are what flags say that several of them are about.
type choices struct {
	verbose, debug, quiet bool
	level                 slog.Level
	host                  *webhook.URL
	dev                   bool
}

func newCommands(p Program, environment func(string) (string, bool)) *commands {
	return &commands{
		Program: p, environment: environment, sections: map[*cobra.Command][]*section{}, given: map[string]bool{},
		invoked: Invocation{Settings: p.Settings},
	}
}

// Annotations of flags.
const (
	envOf    = "env"    // the variable that says the same
	aboutOf  = "about"  // flags about the same thing: one of them silences the variables of all
	manyOf   = "many"   // the variable has several values, separated by spaces
	legacyOf = "legacy" // a variable that adds one value
	mustOf   = "must"   // it has to be given
)

// invocation is what a command was called with. All problems are told together.
func (c *commands) invocation(cmd *cobra.Command) (Invocation, error) {
	c.called = cmd
	flags := cmd.Flags()
	told := map[string]bool{} // by flags: what they are about
	flags.Visit(func(f *pflag.Flag) { told[about(f)] = true })
	flags.VisitAll(func(f *pflag.Flag) {
		if !told[about(f)] {
			c.fromEnvironment(f, f.Annotations[envOf])
		}
		if !flags.Changed("all-namespaces") {
			c.fromEnvironment(f, f.Annotations[legacyOf])
		}
		if f.Annotations[mustOf] != nil && f.Value.(*value).texts == nil {
			c.problem("--%s is required", f.Name)
		}
	})
	i := &c.invoked
	if i.Everywhere && (len(i.Namespaces) > 0 || i.NamespaceSelector != "") {
		c.problem("--namespace and --namespace-selector exclude --all-namespaces")
	}
	c.conclude()
	// What is wrong with the program itself is told with its other mistakes.
	if err := i.Settings.Validate(); err != nil && c.Settings.Validate() == nil {
		c.problem("%w", err)
	}
	return *i, errors.Join(c.problems...)
}

func about(f *pflag.Flag) string {
	if group := f.Annotations[aboutOf]; len(group) > 0 {
		return group[0]
	}
	return f.Name
}

func (c *commands) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

// fromEnvironment takes the value of a flag from a variable (CLI-2). Empty ones say nothing.
func (c *commands) fromEnvironment(f *pflag.Flag, names []string) {
	for _, name := range names {
		text, _ := c.environment(name)
		if text == "" {
			continue
		}
		texts := []string{text}
		if f.Annotations[manyOf] != nil {
			texts = strings.Fields(text)
		}
		for _, text := range texts {
			if err := f.Value.(*value).take(text); err != nil {
				c.problem("$%s is %q: %w", name, text, err)
			}
		}
	}
}

// conclude says what follows from several flags together.
func (c *commands) conclude() {
	i := &c.invoked
	switch {
	case c.choices.verbose, c.choices.debug: // LOG-3
		i.Log.Level = slog.LevelDebug
	case c.choices.quiet:
		i.Log.Level = slog.LevelWarn
	default:
		i.Log.Level = c.choices.level
	}
	i.LogClients = c.choices.debug
	if c.choices.host != nil {
		i.Settings.Admission.Endpoint = *c.choices.host
	}
	c.concludePeering()
}
