// Package manifests prints what has to be applied to a cluster for an operator to run in it.
package manifests

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kopf-go/kopf/internal/permissions"
	"github.com/kopf-go/kopf/internal/schemas"
	"github.com/kopf-go/kopf/webhook"
)

// Part is a part of what is printed.
type Part string

// The parts, in the order in which they are printed, and can be applied.
const (
	CRDs       Part = "crds"       // CustomResourceDefinitions of kopf.Resource types
	RBAC       Part = "rbac"       // a ServiceAccount, and roles with their bindings
	Deployment Part = "deployment" // and the Service of its webhooks
	Webhooks   Part = "webhooks"   // their configurations, and policies
)

// Parts are all of them.
func Parts() []Part { return []Part{CRDs, RBAC, Deployment, Webhooks} }

// Options say what is printed, and how it is called. Zero values stand for the defaults.
type Options struct {
	// Name is that of the objects. Default: that of the operator, or kopf.
	Name string
	// Namespace is where the operator runs. Default: that of Settings.Admission, or default.
	// The manifests do not create it.
	Namespace string
	// Image is that of the container. Default: Name, with the tag latest.
	Image string
	// Replicas is how many pods there are. Default: 1. More need leader election.
	Replicas int
	// Args are those of the container, beside those that follow from the operator's settings.
	Args []string
	// HealthPort is where /healthz and /readyz are served. Default: 8080. Negative: nowhere.
	HealthPort int
	// Parts are what is printed. Default: everything.
	Parts []Part
	// Cluster looks at what the API of the operator's cluster serves, so that the resources
	// of all selectors are known exactly. Default: no cluster is needed, and resources are
	// known that handlers name by their Go type, or by on.Resource.
	Cluster bool
	// ClusterScoped are custom resources whose objects are in no namespace, as PLURAL.GROUP.
	// With Cluster, it is the one that says so.
	ClusterScoped []string
	// Kinds are those of custom resources, by PLURAL.GROUP. Default: they are taken from the
	// names of Go types: Database from DatabaseSpec; or else from the plural.
	Kinds map[string]string
	// Certificate is the one of cert-manager, as NAMESPACE/NAME, whose authority it writes
	// into the configurations of webhooks. Default: the operator, or whoever applies them, does.
	Certificate string
}

// Operator is what there is to print.
type Operator struct {
	Definitions []schemas.Definition
	Needs       []permissions.Need
	Webhooks    []byte // their manifests
	// Endpoint is where webhooks are reached; a Service is printed for a webhook.Service.
	Endpoint    webhook.Endpoint
	WebhookPort int // of the container; 0: there are no webhooks
	Elects      bool
	Grace       time.Duration // that the operator takes to stop
	// Problems are what could not be found out, and notes what was guessed: both are comments.
	Problems, Notes []string
}

// Print writes everything as YAML. The same arguments give the same bytes.
func Print(o Options, op Operator) ([]byte, error) {
	if err := o.check(op); err != nil {
		return nil, err
	}
	p := &printer{}
	for _, problem := range op.Problems {
		p.comment("ERROR: " + problem)
	}
	for _, note := range op.Notes {
		p.comment("NOTE: " + note)
	}
	if o.prints(CRDs) {
		for _, d := range op.Definitions {
			p.object(d)
		}
	}
	if o.prints(RBAC) {
		p.accounts(o, op.Needs)
	}
	if o.prints(Deployment) {
		if service, is := op.Endpoint.(webhook.Service); is && op.WebhookPort != 0 {
			p.object(o.service(service))
		}
		p.object(o.deployment(op))
	}
	if o.prints(Webhooks) {
		p.out.Write(op.Webhooks)
	}
	return p.out.Bytes(), p.err
}

// WithDefaults fills in what was left open, of an operator of this name.
func (o Options) WithDefaults(name, namespace string) Options {
	fill(&o.Name, strings.ToLower(name), "kopf")
	fill(&o.Namespace, namespace, "default")
	fill(&o.Image, o.Name+":latest")
	fill(&o.Replicas, 1)
	fill(&o.HealthPort, 8080)
	if len(o.Parts) == 0 {
		o.Parts = Parts()
	}
	return o
}

// fill takes the first value that is not zero.
func fill[T comparable](option *T, values ...T) {
	var zero T
	for _, value := range values {
		if *option == zero {
			*option = value
		}
	}
}

// check reports all mistakes together.
func (o Options) check(op Operator) error {
	var mistakes []string
	for _, name := range []string{o.Name, o.Namespace} {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			mistakes = append(mistakes, fmt.Sprintf("%q is no name: %s", name, strings.Join(wrong, ", ")))
		}
	}
	for _, part := range o.Parts {
		if !slices.Contains(Parts(), part) {
			mistakes = append(mistakes, fmt.Sprintf("there is no part %q, but crds, rbac, deployment and webhooks", part))
		}
	}
	if o.Replicas < 0 || o.Replicas > 1 && !op.Elects {
		mistakes = append(mistakes, fmt.Sprintf("%d replicas would all handle the same objects: enable leader election, or have one", o.Replicas))
	}
	if len(mistakes) > 0 {
		return fmt.Errorf("manifests: %s", strings.Join(mistakes, "; "))
	}
	return nil
}

func (o Options) prints(part Part) bool { return slices.Contains(o.Parts, part) }

// printer writes objects one after the other.
type printer struct {
	out bytes.Buffer
	err error
}

// comment writes lines that nobody but a reader takes notice of.
func (p *printer) comment(text string) {
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		p.out.WriteString("# " + line + "\n")
	}
}

// object writes one.
func (p *printer) object(o any) {
	text, err := yaml.Marshal(o)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("manifests: %w", err)
	}
	p.out.WriteString("---\n")
	p.out.Write(text)
}
