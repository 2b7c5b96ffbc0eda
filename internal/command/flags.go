package command

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/webhook"
)

// envRun begins the variables of what says how the operator runs, whatever the command.
const envRun = "KOPF_RUN_"

// section is a part of a command's flags, under a title of its own.
type section struct {
	title string
	flags *pflag.FlagSet
	env   string // with which the variables begin
	*commands
}

func (c *commands) section(cmd *cobra.Command, title, env string) *section {
	s := &section{title: title, flags: pflag.NewFlagSet(title, pflag.ContinueOnError), env: env, commands: c}
	s.flags.SortFlags = false
	c.sections[cmd] = append(c.sections[cmd], s)
	return s
}

// add has the flags of a section taken by the command.
func (s *section) add(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.Flags().AddFlagSet(s.flags)
}

// flag defines one, which sets what target points to. Letter may be empty. In the usage, the
// backquoted word names the value.
func (s *section) flag(target any, name, letter, usage string) *pflag.Flag {
	return s.define(valueOf(reflect.ValueOf(target).Elem()), name, letter, usage)
}

// list defines a flag that can be given several times.
func (s *section) list(target *[]string, check func(string) error, name, letter, usage string) *pflag.Flag {
	f := s.define(&value{kind: "strings", parse: func(text string) error {
		if err := check(text); err != nil {
			return err
		}
		*target = append(*target, text)
		return nil
	}}, name, letter, usage+"; repeatable")
	f.Annotations[manyOf] = []string{}
	return f
}

func (s *section) define(v *value, name, letter, usage string) *pflag.Flag {
	v.flag, v.problem = name, s.problem
	f := s.flags.VarPF(v, name, letter, usage)
	if v.kind == "bool" {
		f.NoOptDefVal = "true"
	}
	f.Annotations = map[string][]string{}
	variable(f, s.env+envName(name))
	return f
}

// variable says which variable has the value of a flag.
func variable(f *pflag.Flag, name string) { f.Annotations[envOf] = []string{name} }

func envName(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }

// together has flags be about the same thing.
func together(what string, flags ...*pflag.Flag) {
	for _, f := range flags {
		f.Annotations[aboutOf] = []string{what}
	}
}

// scopeFlags say where.
func (c *commands) scopeFlags(cmd *cobra.Command, env string) {
	s := c.section(cmd, "Scope", env)
	everywhere := s.flag(&c.invoked.Everywhere, "all-namespaces", "A", "in all namespaces")
	variable(everywhere, env+"CLUSTERWIDE")
	some := s.list(&c.invoked.Namespaces, c.CheckNamespace, "namespace", "n", "in namespaces of this `pattern`, such as team-*,!team-secret")
	variable(some, env+"NAMESPACES")
	some.Annotations[legacyOf] = []string{env + "NAMESPACE"}
	selected := s.define(&value{kind: "string", parse: func(text string) error {
		_, err := labels.Parse(text)
		c.invoked.NamespaceSelector = text
		return err
	}}, "namespace-selector", "", "in namespaces with these `labels`, such as team=blue,stage!=test")
	together("scope", everywhere, some, selected)
	s.add(cmd)
}

const connectionTitle = "Connection"

// connectionFlags say with which cluster.
func (c *commands) connectionFlags(cmd *cobra.Command, env string) {
	s := c.section(cmd, connectionTitle, env)
	s.flag(&c.invoked.Kubeconfig, "kubeconfig", "", "connect as this `file` says (default: $KUBECONFIG, in-cluster, ~/.kube/config)")
	s.flag(&c.invoked.Context, "context", "", "the kubeconfig's context of this `name`")
	s.add(cmd)
}

// operatorFlags are those of run that have names of their own.
func (c *commands) operatorFlags(cmd *cobra.Command) {
	s := c.section(cmd, "Operator", envRun)
	s.define(&value{kind: "host", parse: func(text string) error {
		url, err := webhookURL(text)
		c.choices.host = &url
		return err
	}}, "webhook-host", "", "have the API server reach webhooks at this `host`, or host:port, during development")
	for _, short := range shorthands {
		if field, known := c.setting(short.path); known {
			usage := short.usage
			if usage == "" {
				usage = texts[short.path]
			}
			v := valueOf(field)
			parse := v.parse
			v.parse = func(text string) error {
				c.given[short.path] = true
				return parse(text)
			}
			f := s.define(v, short.flag, short.letter, usage)
			if short.env != "" {
				variable(f, envRun+short.env)
			}
		}
	}
	if priority := s.flags.Lookup("priority"); priority != nil {
		dev := s.flag(&c.choices.dev, "dev", "", fmt.Sprintf("during development: a priority of %d, so that others pause", devPriority))
		together("priority", priority, dev)
	}
	s.add(cmd)
}

// webhookURL is where a host, with or without a port, answers.
func webhookURL(text string) (webhook.URL, error) {
	if _, err := netip.ParseAddr(text); err == nil || !strings.Contains(text, ":") {
		if text == "" {
			return webhook.URL{}, errors.New("the host is empty")
		}
		return webhook.URL{Host: text}, nil
	}
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return webhook.URL{}, err
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 {
		return webhook.URL{}, fmt.Errorf("%q is not a port", digits)
	}
	return webhook.URL{Host: host, Port: int(port)}, nil
}

// loggingFlags are those of all commands that log (CLI-3).
func (c *commands) loggingFlags(cmd *cobra.Command, env string) {
	s := c.section(cmd, "Logging", env)
	log := &c.invoked.Log
	together("level",
		s.flag(&c.choices.verbose, "verbose", "v", "log from level debug on"),
		s.flag(&c.choices.debug, "debug", "d", "log from level debug on, and what the clients of the API say"),
		s.flag(&c.choices.quiet, "quiet", "q", "log from level warn on"),
		s.flag(&c.choices.level, "log-level", "", "log from this `level` on: debug, info, warn, error"))
	s.define(&value{kind: "string", text: logging.Formats[0], parse: func(text string) error {
		log.Format = strings.ToLower(text)
		return log.Check()
	}}, "log-format", "", "log in this `format`: "+strings.Join(logging.Formats, ", "))
	s.flag(&log.RefKey, "log-refkey", "", "name the object under this `key` of JSON (default object)")
	prefix := func(on, off logging.Prefix) *value {
		return &value{kind: "bool", parse: func(text string) error {
			yes, err := truth(text)
			if log.Prefix = off; yes {
				log.Prefix = on
			}
			return err
		}}
	}
	on := s.define(prefix(logging.PrefixOn, logging.PrefixOff), "log-prefix", "", "put the object before the message (default: but in JSON and logfmt)")
	off := s.define(prefix(logging.PrefixOff, logging.PrefixOn), "no-log-prefix", "", "do not put the object before the message")
	delete(off.Annotations, envOf)
	together("prefix", on, off)
	s.add(cmd)
	fixed := func(words ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	for flag, words := range map[string][]string{"log-format": logging.Formats, "log-level": {"debug", "info", "warn", "error"}} {
		if err := cmd.RegisterFlagCompletionFunc(flag, fixed(slices.Clone(words)...)); err != nil {
			panic(err) // the flag is defined above
		}
	}
}
