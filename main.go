package kopf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kopf-go/kopf/internal/command"
	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/internal/peering"
	"github.com/kopf-go/kopf/internal/registry"
)

// Main is a whole program with the command line that docs/command-line.md describes. Without
// a command it runs the operator until SIGINT or SIGTERM, and exits with 0; with 1 after an
// error, with 2 if the command line is wrong, and with 137 if it takes longer to stop than
// Settings.Process.ExitTimeout. A second signal ends it at once.
//
//	run         handle objects: the default
//	handlers    list what is registered
//	manifests   print what the operator needs in a cluster
//	freeze      have the operators of a lower priority pause
//	resume      take that back
//	uninstall   take away what the operator has left in the cluster
//	version     print versions
//	completion  print a script for the completion of commands and flags in a shell
//
// What flags say prevails over variables of the environment, and those over the options.
func Main(o Options) {
	os.Exit(command.Main(program(o, os.Stderr), os.Args[1:], os.Stdout, os.Stderr))
}

// program is what the commands do.
func program(o Options, stderr io.Writer) command.Program {
	invoked := func(i command.Invocation) (*Operator, error) { return invoked(o, i, stderr) }
	return command.Program{
		Name: filepath.Base(os.Args[0]), Settings: o.Settings,
		CheckNamespace: func(pattern string) error {
			_, err := engine.ParseNamespaces([]string{pattern})
			return err
		},
		Run: func(ctx context.Context, i command.Invocation) error {
			op, err := invoked(i)
			if err != nil {
				return err
			}
			op.exit = func(after time.Duration) {
				fmt.Fprintf(stderr, "error: the operator has not stopped within %s, as Settings.Process.ExitTimeout says\n", after)
				os.Exit(command.Late)
			}
			return op.Run(ctx)
		},
		Handlers: func() ([]*registry.Handler, error) {
			o := o.withDefaults()
			handlers, err := resolved(o.Registry, o.Scheme)
			if err := errors.Join(o.Registry.Err(), err); err != nil {
				return nil, command.Mistakes{Err: err}
			}
			return handlers, nil
		},
		Manifests: func(ctx context.Context, out io.Writer, i command.Invocation, m command.ManifestsOptions) error {
			op, err := invoked(i)
			if err != nil {
				return err
			}
			return op.printManifests(ctx, out, m)
		},
		Freeze: func(ctx context.Context, out io.Writer, i command.Invocation, f command.FreezeOptions) error {
			op, err := invoked(i)
			if err != nil {
				return err
			}
			return op.freeze(ctx, out, peering.Freeze, peering.FreezeOptions{
				Name: f.Peering, ID: f.ID, Priority: f.Priority, Lifetime: f.Lifetime, Message: f.Message,
			})
		},
		Resume: func(ctx context.Context, out io.Writer, i command.Invocation, r command.ResumeOptions) error {
			op, err := invoked(i)
			if err != nil {
				return err
			}
			return op.freeze(ctx, out, peering.Resume, peering.FreezeOptions{Name: r.Peering, ID: r.ID})
		},
		Uninstall: func(ctx context.Context, out io.Writer, i command.Invocation, u command.UninstallOptions) error {
			op, err := invoked(i)
			if err != nil {
				return err
			}
			report, err := op.Uninstall(ctx, UninstallOptions(u))
			if report != nil {
				err = errors.Join(report.Print(out), err)
			}
			return err
		},
		Why: func(ctx context.Context, out io.Writer, w command.WhyOptions) error {
			return Why(ctx, out, WhyOptions{Address: w.Address, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, Output: w.Output})
		},
	}
}

// printManifests writes what Manifests returns, also if that is not everything.
func (o *Operator) printManifests(ctx context.Context, out io.Writer, m command.ManifestsOptions) error {
	options := ManifestOptions{
		Name: m.Name, Namespace: m.Namespace, Image: m.Image, Replicas: m.Replicas, HealthPort: m.HealthPort, Args: m.Args,
		Cluster: m.Cluster, ClusterScoped: m.ClusterScoped, Kinds: m.Kinds, Certificate: m.Certificate,
	}
	for _, part := range m.Parts {
		options.Parts = append(options.Parts, ManifestPart(part))
	}
	text, err := o.Manifests(ctx, options)
	if _, failed := out.Write(text); failed != nil {
		return failed
	}
	return err
}

// freeze has operators pause, or go on, where this one handles objects.
func (o *Operator) freeze(ctx context.Context, out io.Writer, note func(context.Context, peering.Client, peering.Discovery, peering.FreezeOptions) ([]string, error), f peering.FreezeOptions) error {
	s := o.newSession()
	defer s.disconnect()
	if err := s.connect(ctx); err != nil {
		return err
	}
	where := s.config.Namespaces
	if f.Namespaces = where.Only(); len(f.Namespaces) == 0 && !where.All() {
		f.Match = where.Match
	}
	noted, err := note(ctx, s.config.Client, s.config.Discovery, f)
	for _, object := range noted {
		fmt.Fprintln(out, object)
	}
	return err
}

// invoked is the operator with what the command line says.
func invoked(o Options, i command.Invocation, stderr io.Writer) (*Operator, error) {
	if err := applyInvocation(&o, i, stderr); err != nil {
		return nil, err
	}
	op, err := New(o)
	if err != nil {
		return nil, command.Mistakes{Err: err}
	}
	return op, nil
}

// applyInvocation completes the options; what the program set itself stays, unless the
// command line says otherwise.
func applyInvocation(o *Options, i command.Invocation, stderr io.Writer) error {
	o.Settings = i.Settings
	if o.Logger == nil {
		log, err := logging.New(stderr, i.Log)
		if err != nil {
			return err
		}
		o.Logger = log
		bridge := logr.FromSlogHandler(log.Handler())
		klog.SetLogger(bridge)
		ctrllog.SetLogger(bridge)
		if i.LogClients {
			var verbosity klog.Level
			if err := verbosity.Set(clientVerbosity); err != nil {
				return err
			}
		}
	}
	if i.Everywhere || len(i.Namespaces) > 0 || i.NamespaceSelector != "" {
		o.Namespaces, o.NamespaceSelector = i.Namespaces, i.NamespaceSelector
	}
	var err error
	switch {
	case i.Kubeconfig != "":
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: i.Kubeconfig}
		overrides := &clientcmd.ConfigOverrides{CurrentContext: i.Context}
		o.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	case i.Context != "":
		o.Config, err = config.GetConfigWithContext(i.Context)
	}
	if err != nil {
		return fmt.Errorf("no cluster to connect to: %w", err)
	}
	return nil
}

// clientVerbosity is what client-go says about its caches and streams, but not the contents
// of requests, which may be secrets.
const clientVerbosity = "4"
