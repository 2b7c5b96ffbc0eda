package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FreezeOptions say whom to pause (CLI-6). Where is said by the Invocation.
type FreezeOptions struct {
	Peering  string
	ID       string // empty: as peers name themselves
	Priority int    // operators of a lower one pause
	Lifetime time.Duration
	Message  string
}

// ResumeOptions say what to take back.
type ResumeOptions struct {
	Peering string
	ID      string
}

// ManifestsOptions say what to print. Zero values stand for the defaults.
type ManifestsOptions struct {
	Name          string
	Namespace     string
	Image         string
	Replicas      int
	HealthPort    int
	Args          []string
	Parts         []string
	Cluster       bool
	ClusterScoped []string
	Kinds         map[string]string // by PLURAL.GROUP
	Certificate   string            // NAMESPACE/NAME, of cert-manager
}

// WhyOptions say of which object to tell the last decisions.
type WhyOptions struct {
	Kind, Namespace, Name string
	Address               string // of the operator's endpoints
	Output                string // text or json
}

const (
	envFreeze    = "KOPF_FREEZE_"
	envResume    = "KOPF_RESUME_"
	envUninstall = "KOPF_UNINSTALL_"
	envManifests = "KOPF_MANIFESTS_"
	envWhy       = "KOPF_WHY_"
	envHandlers  = "KOPF_HANDLERS_"
)

// freezePriority is that of a freeze without another one (CLI-6).
const freezePriority = 100

func (c *commands) freezeCommand() *cobra.Command {
	o := FreezeOptions{Priority: freezePriority}
	dev := false
	cmd := c.command("freeze", "Have the operators of a lower priority pause", func(ctx context.Context, out io.Writer, i Invocation) error {
		if dev {
			o.Priority = devPriority
		}
		return c.Freeze(ctx, out, i, o)
	})
	c.scopeFlags(cmd, envFreeze)
	s := c.section(cmd, "Freeze", envFreeze)
	s.required(s.flag(&o.Peering, "peering", "P", "the peering object's `name`; required"))
	s.flag(&o.ID, "id", "i", "freeze under this `name` (default: $POD_ID, or user@host)")
	priority := s.flag(&o.Priority, "priority", "p", fmt.Sprintf("the priority of the freeze (default %d)", freezePriority))
	together("priority", priority, s.flag(&dev, "dev", "", fmt.Sprintf("a priority of %d", devPriority)))
	s.required(s.define(&value{kind: "duration", parse: func(text string) error {
		d, err := duration(text)
		if o.Lifetime = d; err == nil && (d <= 0 || d%time.Second != 0) {
			return errors.New("that is not a number of seconds above 0")
		}
		return err
	}}, "lifetime", "t", "until when to pause if nobody resumes, such as 600 or 10m; required"))
	s.flag(&o.Message, "message", "m", "why, for whoever looks at the peering object")
	s.add(cmd)
	c.connectionFlags(cmd, envFreeze)
	c.loggingFlags(cmd, envFreeze)
	return cmd
}

func (c *commands) resumeCommand() *cobra.Command {
	var o ResumeOptions
	cmd := c.command("resume", "Take a freeze back", func(ctx context.Context, out io.Writer, i Invocation) error { return c.Resume(ctx, out, i, o) })
	c.scopeFlags(cmd, envResume)
	s := c.section(cmd, "Resume", envResume)
	s.required(s.flag(&o.Peering, "peering", "P", "the peering object's `name`; required"))
	s.flag(&o.ID, "id", "i", "the `name` of the freeze (default: $POD_ID, or user@host)")
	s.add(cmd)
	c.connectionFlags(cmd, envResume)
	c.loggingFlags(cmd, envResume)
	return cmd
}

func (c *commands) manifestsCommand() *cobra.Command {
	o := ManifestsOptions{Kinds: map[string]string{}}
	var kinds []string
	cmd := c.command("manifests", "Print what the operator needs in a cluster, as YAML", func(ctx context.Context, out io.Writer, i Invocation) error {
		for _, text := range kinds {
			resource, kind, _ := strings.Cut(text, "=")
			o.Kinds[resource] = kind
		}
		o.Args = append(c.passedOn(), o.Args...)
		return c.Manifests(ctx, out, i, o)
	})
	s := c.section(cmd, "Manifests", envManifests)
	s.flag(&o.Name, "name", "", "`name` of the objects (default: the operator's, or kopf)")
	s.flag(&o.Namespace, "operator-namespace", "", "the `namespace` that the operator runs in (default: the setting's, or default)")
	s.flag(&o.Image, "image", "", "the container's `image` (default: NAME:latest)")
	s.flag(&o.Replicas, "replicas", "", "how many pods there are (default 1); more need leader election")
	s.flag(&o.HealthPort, "health-port", "", "the `port` of the container's probes (default 8080); negative: none")
	s.list(&o.Args, anything, "arg", "", "one `argument` more for the container")
	s.list(&o.Parts, anything, "part", "", "only this `part` of the manifests")
	s.flag(&o.Cluster, "cluster", "", "look at what the API serves, to know the resources of all selectors")
	s.list(&o.ClusterScoped, anything, "cluster-scoped", "", "a custom resource in no namespace, as `PLURAL.GROUP`")
	s.list(&kinds, checkKind, "kind", "", "the kind of a custom resource, as `PLURAL.GROUP=KIND`")
	s.flag(&o.Certificate, "certificate", "", "a certificate of cert-manager's, as `NAMESPACE/NAME`, which webhooks trust")
	s.add(cmd)
	c.scopeFlags(cmd, envRun)
	c.connectionFlags(cmd, envRun)
	c.operatorFlags(cmd)
	c.settingsFlags(cmd)
	return cmd
}

// passedOn are the arguments that say how the operator runs, for the operator in the cluster
// to run like that. What follows from the settings in any case is not among them.
func (c *commands) passedOn() (args []string) {
	for _, s := range c.sections[c.called] {
		if s.env != envRun || s.title == connectionTitle {
			continue
		}
		s.flags.VisitAll(func(f *pflag.Flag) {
			if slices.Contains([]string{"webhook-host", "leader-elect", "health-address"}, f.Name) {
				return
			}
			for _, text := range f.Value.(*value).texts {
				args = append(args, "--"+f.Name+"="+text)
			}
		})
	}
	return args
}

func anything(string) error { return nil }

func checkKind(text string) error {
	if resource, kind, both := strings.Cut(text, "="); !both || resource == "" || kind == "" {
		return errors.New("that is not PLURAL.GROUP=KIND")
	}
	return nil
}

const defaultAddress = "http://localhost:8080"

func (c *commands) whyCommand() *cobra.Command {
	o := WhyOptions{Address: defaultAddress, Output: "text"}
	cmd := c.command("why", "Tell the last decisions about an object", func(ctx context.Context, out io.Writer, _ Invocation) error { return c.Why(ctx, out, o) })
	cmd.Use = "why KIND/NAME"
	cmd.Args = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) != 1 {
			return errors.New("which object? Say KIND/NAME")
		}
		parts := strings.Split(args[0], "/")
		if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
			return fmt.Errorf("%q is neither KIND/NAME nor KIND/NAMESPACE/NAME", args[0])
		}
		o.Kind, o.Name = parts[0], parts[len(parts)-1]
		if len(parts) == 3 {
			o.Namespace = parts[1]
		}
		return nil
	}
	s := c.section(cmd, "Why", envWhy)
	s.flag(&o.Namespace, "namespace", "n", "the object's `namespace`")
	s.flag(&o.Address, "address", "", "`URL` of the operator's endpoints (default "+defaultAddress+")")
	s.output(&o.Output, "text", "json")
	s.add(cmd)
	return cmd
}

// UninstallOptions say what is taken away, and what stays.
type UninstallOptions struct {
	KeepFinalizers, KeepState, KeepWebhooks bool
	Abandon, Force, DryRun                  bool
}

func (c *commands) uninstallCommand() *cobra.Command {
	var o UninstallOptions
	cmd := c.command("uninstall", "Take away what the operator has left in the cluster: finalizers, state, webhooks", func(ctx context.Context, out io.Writer, i Invocation) error {
		return c.Uninstall(ctx, out, i, o)
	})
	s := c.section(cmd, "Uninstall", envUninstall)
	s.flag(&o.DryRun, "dry-run", "", "only tell what would be done")
	s.flag(&o.KeepFinalizers, "keep-finalizers", "", "leave finalizers, so that nobody can delete the objects without the operator")
	s.flag(&o.KeepState, "keep-state", "", "leave what was handled and progress, for an operator of the same name to go on")
	s.flag(&o.KeepWebhooks, "keep-webhooks", "", "leave configurations of webhooks, policies and certificates")
	s.flag(&o.Abandon, "abandon", "", "take finalizers of objects that are being deleted, too, whose handlers never end then")
	s.flag(&o.Force, "force", "", "go on although a replica of the operator seems to run")
	s.add(cmd)
	c.scopeFlags(cmd, envRun)
	c.connectionFlags(cmd, envRun)
	c.operatorFlags(cmd)
	c.loggingFlags(cmd, envRun)
	c.settingsFlags(cmd)
	return cmd
}

// required makes a flag a must, which a variable fulfils, too.
func (s *section) required(f *pflag.Flag) { f.Annotations[mustOf] = []string{} }

// output defines -o.
func (s *section) output(target *string, formats ...string) {
	s.define(&value{kind: "string", parse: func(text string) error {
		for _, format := range formats {
			if format == text {
				*target = text
				return nil
			}
		}
		return fmt.Errorf("use one of %s", strings.Join(formats, ", "))
	}}, "output", "o", "print as this `format`: "+strings.Join(formats, ", "))
}
