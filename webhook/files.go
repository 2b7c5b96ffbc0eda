package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CertificateFiles are certificates that somebody else makes and puts into files, such as a
// mounted Secret. They are read again when they change. Files that do not fit each other are
// half-way through a change: what was there before stays in use, and if that lasts it is logged.
//
// A certificate that clients trust as they are is served at once. One of another authority is
// served when the configurations have had that for a while, and both are trusted until the end
// of the old one. Set the fields before Run, and do not copy it afterwards.
type CertificateFiles struct {
	Cert string // path of the certificate, in PEM, with those between it and the authority
	Key  string // path of its key, in PEM
	CA   string // path of what clients have to trust, in PEM; empty: the certificate itself

	// Every is how often the files are looked at. Default: 10 seconds.
	Every time.Duration
	// Settle is how long API servers may take to notice a new configuration. Default: a minute.
	Settle time.Duration
	// Log is for trouble with the files. Nil: the default logger.
	Log *slog.Logger

	served
}

var _ Certificates = (*CertificateFiles)(nil)

// Run follows the files until the context ends. It calls changed from its own goroutine when
// there is a bundle, and whenever there is another one. It returns an error at once if the
// fields make no sense, and else nil: files that are missing or do not fit are waited for.
func (c *CertificateFiles) Run(ctx context.Context, names []string, changed func()) error {
	if c.Cert == "" || c.Key == "" {
		return errors.New("the paths of the certificate and of its key are needed")
	}
	every, woken := cmp.Or(c.Every, 10*time.Second), c.woken()
	f := &follower{
		served: &c.served, names: names, settle: cmp.Or(c.Settle, time.Minute), changed: changed,
		log: cmp.Or(c.Log, slog.Default()), read: c.read,
		wait: func(ctx context.Context, until time.Time) {
			timer := time.NewTimer(min(every, time.Until(until)))
			defer timer.Stop()
			select {
			case <-ctx.Done():
			case <-timer.C:
			case <-woken:
			}
		},
	}
	f.run(ctx)
	return nil
}

func (c *CertificateFiles) read(context.Context) (*given, error) {
	var data [3][]byte
	for i, path := range []string{c.Cert, c.Key, c.CA} {
		if path == "" {
			continue
		}
		var err error
		if data[i], err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("cannot read the webhooks' certificate: %w", err)
		}
	}
	g, err := parseGiven(data[0], data[1], data[2], time.Now())
	if err != nil {
		return nil, fmt.Errorf("the files %s, %s and %s do not fit each other: %w", c.Cert, c.Key, cmp.Or(c.CA, "no authorities"), err)
	}
	return g, nil
}

// CertificateSecret is a certificate that somebody else keeps in a Secret, in the form that
// cert-manager has: tls.crt, tls.key and ca.crt. It is followed, like CertificateFiles, and
// never written. Set the fields before Run, and do not copy it afterwards.
type CertificateSecret struct {
	// Namespace and Name are those of the Secret. Empty: filled in by the operator.
	Namespace, Name string
	// Secrets are the cluster's. Nil: those of the operator's cluster. Needed: get and watch.
	Secrets Secrets
	// Settle is how long API servers may take to notice a new configuration. Default: a minute.
	Settle time.Duration
	// Log is for trouble with the Secret. Nil: the default logger.
	Log *slog.Logger

	served
}

var _ InSecret = (*CertificateSecret)(nil)

// Connect sets the cluster, the parts of the Secret's name and the logger that are not set.
func (c *CertificateSecret) Connect(secrets Secrets, name types.NamespacedName, log *slog.Logger) {
	if c.Secrets == nil {
		c.Secrets = secrets
	}
	c.Namespace, c.Name = cmp.Or(c.Namespace, name.Namespace), cmp.Or(c.Name, name.Name)
	c.Log = cmp.Or(c.Log, log)
}

// Run follows the Secret until the context ends. It calls changed from its own goroutine when
// there is a bundle, and whenever there is another one. It returns an error at once if the
// fields make no sense, and else nil: a Secret that is missing or makes no sense is waited for.
func (c *CertificateSecret) Run(ctx context.Context, names []string, changed func()) error {
	name := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	if c.Secrets == nil || c.Namespace == "" || c.Name == "" {
		return fmt.Errorf("there is no cluster or no full name for the Secret %q with the webhooks' certificate", name)
	}
	w := &watcher{secrets: c.Secrets, name: name}
	defer w.stop()
	version, woken, retry := "", c.woken(), backoff{}
	f := &follower{served: &c.served, names: names, settle: cmp.Or(c.Settle, time.Minute), changed: changed, log: cmp.Or(c.Log, slog.Default())}
	f.read = func(ctx context.Context) (*given, error) {
		trouble := w.start(ctx) // before the look, so that nothing is missed between
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		g, seen, err := c.read(ctx, name)
		version = seen
		if err == nil {
			err = trouble
		}
		return g, err
	}
	f.wait = func(ctx context.Context, until time.Time) {
		if c.troubled() {
			until = earliest(until, time.Now().Add(retry.next()))
		} else {
			retry = backoff{}
		}
		w.wait(ctx, until, woken, &version)
	}
	f.run(ctx)
	return nil
}

func (c *CertificateSecret) read(ctx context.Context, name types.NamespacedName) (*given, string, error) {
	secret, err := c.Secrets.Get(ctx, name)
	if err != nil {
		return nil, "", explained(err, "get", name)
	}
	g, err := parseGiven(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], secret.Data[keyBundle], time.Now())
	if err != nil {
		err = fmt.Errorf("the secret %s has no certificate for webhooks: %w", name, err)
	}
	return g, secret.ResourceVersion, err
}
