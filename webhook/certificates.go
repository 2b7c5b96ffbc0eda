package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// OwnCertificates are made by the operator: an authority and a serving certificate, kept in
// a Secret that all replicas share, and renewed long before they end, without a request that
// fails. A renewal goes like this:
//
//  1. Some replica writes a new authority into the Secret, beside the one in use.
//  2. Whoever keeps the configurations writes both into them, and says so with Applied.
//  3. When all API servers have had time to notice, that replica signs a new serving
//     certificate with the new authority, and writes it.
//  4. Replicas serve it as soon as they see it. Those that have not are trusted as before:
//     the old authority stays in the bundle until its own end, which is that of its certificate.
//
// Each step is one write with optimistic locking, so that of several replicas one wins and
// the others take what it wrote, and everything needed for the next step is in the Secret or
// is told again after a restart. A Secret that was deleted or spoilt is restored from what a
// replica has in memory, or else made anew.
//
// Set the fields before Run, and do not copy it afterwards. It serves one operator.
type OwnCertificates struct {
	// Secret is where they are kept. Empty parts are filled in by the operator. With no name
	// and no cluster they are kept in memory only: for one process, until it ends.
	Secret types.NamespacedName
	// Secrets are the cluster's. Nil: those of the operator's cluster.
	Secrets Secrets
	// Lifetime is how long authorities and certificates are valid. Default: a year. At least a minute.
	Lifetime time.Duration
	// RenewBefore is how long before the end a renewal begins, up to a tenth of itself
	// earlier, so that replicas do not begin together. Default: a third of Lifetime.
	RenewBefore time.Duration
	// Settle is how long API servers may take to notice a new configuration. Default: a
	// minute, or a quarter of RenewBefore if that is less.
	Settle time.Duration
	// Log is for renewals and repairs. Nil: the default logger.
	Log *slog.Logger

	served
}

// InSecret are certificates that are kept in a Secret.
type InSecret interface {
	Certificates
	// Connect fills in what was left open. It is called before Run.
	Connect(secrets Secrets, name types.NamespacedName, log *slog.Logger)
}

var _ InSecret = (*OwnCertificates)(nil)

// Connect sets the cluster, the parts of the Secret's name and the logger that are not set.
func (c *OwnCertificates) Connect(secrets Secrets, name types.NamespacedName, log *slog.Logger) {
	if c.Secrets == nil {
		c.Secrets = secrets
	}
	c.Secret.Namespace = cmp.Or(c.Secret.Namespace, name.Namespace)
	c.Secret.Name = cmp.Or(c.Secret.Name, name.Name)
	c.Log = cmp.Or(c.Log, log)
}

// grace is how long a replica that has made everything anew waits before it serves that, for
// others that are still serving something else to say so.
const grace = time.Second

// Run keeps the certificates for these names until the context ends. It calls changed from
// its own goroutine when there is a bundle, and whenever there is another one; that must not
// take long. It returns an error at once if the fields make no sense, and else nil: trouble
// with the Secret is logged, told by Certificate while there is none, and tried again.
func (c *OwnCertificates) Run(ctx context.Context, names []string, changed func()) error {
	p, err := c.plan(names)
	if err != nil {
		return err
	}
	k := &keeper{served: &c.served, plan: p, secrets: c.Secrets, name: c.Secret, changed: changed, log: cmp.Or(c.Log, slog.Default())}
	if k.secrets == nil {
		k.secrets, k.alone = &inMemory{}, true
	}
	k.run(ctx)
	return nil
}

// plan checks the fields and fills in what they are by default.
func (c *OwnCertificates) plan(names []string) (plan, error) {
	p := plan{names: names, lifetime: cmp.Or(c.Lifetime, 365*24*time.Hour), early: rand.Float64() / 10}
	p.renewBefore = cmp.Or(c.RenewBefore, p.lifetime/3)
	p.settle = cmp.Or(c.Settle, min(time.Minute, p.renewBefore/4))
	switch {
	case len(names) == 0:
		return p, errors.New("there is no name to make a certificate for")
	case p.lifetime < time.Minute:
		return p, fmt.Errorf("a Lifetime of %s is less than a minute", p.lifetime)
	case p.renewBefore < 0 || p.renewBefore > p.lifetime*9/10:
		return p, fmt.Errorf("a RenewBefore of %s is not within a Lifetime of %s", p.renewBefore, p.lifetime)
	case p.settle < 0 || p.settle > p.renewBefore/2:
		return p, fmt.Errorf("a Settle of %s leaves no time for a renewal within a RenewBefore of %s", p.settle, p.renewBefore)
	case c.Secrets != nil && (c.Secret.Namespace == "" || c.Secret.Name == ""):
		return p, errors.New("the Secret for the webhooks' certificates has no name or namespace")
	}
	return p, nil
}
