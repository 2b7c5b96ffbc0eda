package kopf

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kopf-go/kopf/internal/engine"
	"github.com/kopf-go/kopf/internal/logging"
	"github.com/kopf-go/kopf/webhook"
)

// Main is a whole program: it reads the command line, runs the operator until
// SIGINT or SIGTERM, and exits with 0; with 1 after an error, with 2 after a wrong
// command line; with 137 if it takes longer to stop than Settings.Process.ExitTimeout. A second
// signal ends the process at once.
//
//	-n, --namespace PATTERN  where to handle objects; repeatable; overrides Options.Namespaces
//	-A, --all-namespaces     everywhere; overrides Options.Namespaces
//	--kubeconfig FILE        default: $KUBECONFIG, in-cluster, ~/.kube/config
//	--context NAME           of the kubeconfig
//	--webhook-host HOST      during development: where the API server reaches this process,
//	                         with or without a port; overrides Settings.Admission.Endpoint
//	--print-webhooks         print the configurations of webhooks as manifests, and exit
//	--log-level LEVEL        debug, info (default), warn, error
//	--log-format FORMAT      text (default), plain, full, logfmt, json
func Main(o Options) {
	os.Exit(run(o, os.Args[1:], os.Stderr))
}

// Exit codes of Main.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitLate  = 137 // as if it had been killed
)

func run(o Options, args []string, stderr io.Writer) int {
	flags, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return exitUsage // it was said with the usage
	}
	if err := flags.apply(&o, stderr); err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return exitError
	}
	op, err := New(o)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitError
	}
	if flags.print {
		return printWebhooks(op, os.Stdout, stderr)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal takes its usual course
	defer stop()
	op.exit = func(after time.Duration) {
		fmt.Fprintf(stderr, "error: the operator has not stopped within %s, as Settings.Process.ExitTimeout says\n", after)
		os.Exit(exitLate)
	}
	if err := op.Run(ctx); err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return exitError
	}
	return exitOK
}

// printWebhooks writes manifests, for a pipe to kubectl or into a chart.
func printWebhooks(op *Operator, out, stderr io.Writer) int {
	manifests, err := op.WebhookManifests(context.Background(), "")
	if err == nil {
		_, err = out.Write(manifests)
	}
	if err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return exitError
	}
	return exitOK
}

type flags struct {
	webhook    *webhook.URL
	print      bool
	namespaces []string
	everywhere bool
	kubeconfig string
	context    string
	level      slog.Level
	format     string
}

func parseFlags(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("operator", flag.ContinueOnError)
	set.SetOutput(stderr)
	namespace := func(pattern string) error {
		if _, err := engine.ParseNamespaces([]string{pattern}); err != nil {
			return err
		}
		f.namespaces = append(f.namespaces, pattern)
		return nil
	}
	set.Func("namespace", "handle objects in namespaces of this `pattern`; repeatable", namespace)
	set.Func("n", "short for --namespace `pattern`", namespace)
	set.BoolVar(&f.everywhere, "all-namespaces", false, "handle objects in all namespaces")
	set.BoolVar(&f.everywhere, "A", false, "short for --all-namespaces")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "connect as this `file` says (default: $KUBECONFIG, in-cluster, ~/.kube/config)")
	set.StringVar(&f.context, "context", "", "the kubeconfig's context of this `name`")
	set.Func("webhook-host", "have the API server reach webhooks at this `host`, or host:port, during development", func(text string) error {
		url, err := webhookURL(text)
		f.webhook = &url
		return err
	})
	set.BoolVar(&f.print, "print-webhooks", false, "print the configurations of webhooks as manifests, and exit")
	set.TextVar(&f.level, "log-level", slog.LevelInfo, "log from this `level` on: debug, info, warn, error")
	set.StringVar(&f.format, "log-format", "text", "log in this `format`: text, plain, full, logfmt, json")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	problem := ""
	switch {
	case set.NArg() > 0:
		problem = "unexpected argument " + set.Arg(0)
	case f.everywhere && len(f.namespaces) > 0:
		problem = "--namespace and --all-namespaces exclude each other"
	}
	if _, err := logging.New(io.Discard, logging.Options{Level: f.level, Format: f.format}); err != nil {
		problem = err.Error()
	}
	if problem != "" {
		fmt.Fprintln(stderr, problem)
		set.Usage()
		return nil, errors.New(problem)
	}
	return f, nil
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

// apply completes the options; what the program set itself stays, unless a flag
// says otherwise.
func (f *flags) apply(o *Options, stderr io.Writer) error {
	if o.Logger == nil {
		log, err := logging.New(stderr, logging.Options{Level: f.level, Format: f.format})
		if err != nil {
			return err
		}
		o.Logger = log
		bridge := logr.FromSlogHandler(log.Handler())
		klog.SetLogger(bridge)
		ctrllog.SetLogger(bridge)
	}
	if f.everywhere {
		o.Namespaces = nil
	}
	if len(f.namespaces) > 0 {
		o.Namespaces = f.namespaces
	}
	if f.webhook != nil {
		o.Settings.Admission.Endpoint = *f.webhook
	}
	var err error
	switch {
	case f.kubeconfig != "":
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.kubeconfig}
		overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
		o.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	case f.context != "":
		o.Config, err = config.GetConfigWithContext(f.context)
	}
	if err != nil {
		return fmt.Errorf("no cluster to connect to: %w", err)
	}
	return nil
}
