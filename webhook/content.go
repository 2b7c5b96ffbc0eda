package webhook

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What is in the Secret: the usual three of a Secret of TLS, so that others can use it, and
// what replicas need to go on from there.
const (
	keyCertificate   = corev1.TLSCertKey       // what to serve with
	keyKey           = corev1.TLSPrivateKeyKey // its key
	keyBundle        = "ca.crt"                // what to trust: all authorities that have not ended
	keyAuthorityKey  = "ca.key"                // of the one that has signed what is served
	keyNext          = "next-ca.crt"           // the one that will sign as soon as all clients trust it
	keyNextKey       = "next-ca.key"
	secretAnnotation = "kopf.zalando.org/certificates" // tells people what this is
)

// content is what is in the Secret. It is never changed.
type content struct {
	authority *authority // has signed what is served
	serving   *pair
	next      *authority // nil: none is under way
	bundle    bundle
}

// decode reads a Secret, and fails if anything in it does not fit the rest.
func decode(secret *corev1.Secret) (*content, error) {
	c, err := &content{}, error(nil)
	if c.serving, err = newPair(secret.Data[keyCertificate], secret.Data[keyKey]); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", keyCertificate, keyKey, err)
	}
	if c.bundle, err = parseBundle(secret.Data[keyBundle]); err != nil {
		return nil, fmt.Errorf("%s: %w", keyBundle, err)
	}
	for _, certificate := range c.bundle {
		if !certificate.IsCA {
			return nil, fmt.Errorf("%s: %s is no authority", keyBundle, certificate.Subject)
		}
		if found, err := parseAuthority(encodeCertificate(certificate.Raw), secret.Data[keyAuthorityKey]); err == nil {
			c.authority = found
		}
	}
	if c.authority == nil {
		return nil, fmt.Errorf("%s: it is the key of nothing in %s", keyAuthorityKey, keyBundle)
	}
	if err := c.serving.tls.Leaf.CheckSignatureFrom(c.authority.certificate); err != nil {
		return nil, fmt.Errorf("%s: not signed with %s: %w", keyCertificate, keyAuthorityKey, err)
	}
	if len(secret.Data[keyNext])+len(secret.Data[keyNextKey]) == 0 {
		return c, nil
	}
	if c.next, err = parseAuthority(secret.Data[keyNext], secret.Data[keyNextKey]); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", keyNext, keyNextKey, err)
	}
	if !c.bundle.has(c.next.certificate) {
		return nil, errors.New(keyNext + ": it is not in " + keyBundle)
	}
	return c, nil
}

// salvage is what can still be trusted in a Secret that does not fit: a whole bundle, or nothing.
func salvage(secret *corev1.Secret) bundle {
	found, err := parseBundle(secret.Data[keyBundle])
	if err != nil {
		return nil
	}
	for _, certificate := range found {
		if !certificate.IsCA {
			return nil
		}
	}
	return found
}

// encode writes it into a Secret, or a new one if that is nil, and leaves alone what else is there.
func (c *content) encode(into *corev1.Secret, name types.NamespacedName) (*corev1.Secret, error) {
	if into == nil {
		into = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Annotations: map[string]string{
				secretAnnotation: "kept by the operator: deleted or changed, it is repaired",
			}},
			Type: corev1.SecretTypeTLS,
		}
	}
	into = into.DeepCopy()
	if into.Data == nil {
		into.Data = map[string][]byte{}
	}
	authorityKey, err := encodeKey(c.authority.key)
	if err != nil {
		return nil, err
	}
	into.Data[keyCertificate], into.Data[keyKey] = c.serving.certPEM, c.serving.keyPEM
	into.Data[keyBundle], into.Data[keyAuthorityKey] = c.bundle.pem(), authorityKey
	delete(into.Data, keyNext)
	delete(into.Data, keyNextKey)
	if c.next == nil {
		return into, nil
	}
	into.Data[keyNext] = encodeCertificate(c.next.certificate.Raw)
	into.Data[keyNextKey], err = encodeKey(c.next.key)
	return into, err
}
