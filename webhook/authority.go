package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// authority is a certificate authority with its key. It lives as long as what it signs.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// clockSkew is how far clocks of clients may be behind: certificates begin that much earlier,
// but not by more than a tenth of their life.
const clockSkew = time.Hour

// newAuthority makes one that begins now. Its name is its own, so that clients which trust
// several tell them apart.
func newAuthority(now time.Time, lifetime time.Duration) (*authority, error) {
	key, serial, err := keyAndSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "kopf webhooks " + hex.EncodeToString(serial.Bytes()[:4])},
		NotBefore:             now.Add(-min(clockSkew, lifetime/10)),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	return &authority{certificate: certificate, key: key}, err
}

// sign makes a serving certificate for these names, which ends with the authority.
func (a *authority) sign(names []string, now time.Time) (*pair, error) {
	key, serial, err := keyAndSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName(names)},
		NotBefore:    latest(a.certificate.NotBefore, now.Add(-clockSkew)),
		NotAfter:     a.certificate.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign a certificate for %v: %w", names, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return newPair(encodeCertificate(raw), keyPEM)
}

// commonName is for people who look at the certificate. Names of more than 64 bytes are not
// legal there.
func commonName(names []string) string {
	for _, name := range names {
		if len(name) <= 64 {
			return name
		}
	}
	return "kopf webhooks"
}

func keyAndSerial() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	serial := make([]byte, 16)
	if _, err := rand.Read(serial); err != nil {
		return nil, nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	serial[0] = serial[0]&0x7f | 0x40 // positive, and never short
	return key, new(big.Int).SetBytes(serial), nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pair is a certificate with its key, as bytes and as what a server takes.
type pair struct {
	certPEM, keyPEM []byte
	tls             *tls.Certificate // with its Leaf
}

// newPair fails if the two do not belong together.
func newPair(certPEM, keyPEM []byte) (*pair, error) {
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	if certificate.Leaf == nil { // GODEBUG can have it so
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &pair{certPEM: certPEM, keyPEM: keyPEM, tls: &certificate}, nil
}

// covers tells whether a certificate is for all these names.
func covers(certificate *x509.Certificate, names []string) bool {
	for _, name := range names {
		if certificate.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

// parseAuthority reads one from PEM, and fails if key and certificate do not belong together.
func parseAuthority(certPEM, keyPEM []byte) (*authority, error) {
	both, err := newPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	key, ok := both.tls.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !both.tls.Leaf.IsCA {
		return nil, errors.New("this is no authority of the operator's")
	}
	return &authority{certificate: both.tls.Leaf, key: key}, nil
}

func encodeCertificate(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}

// namesOf are names, and all others that a certificate is for: replicas of an old and a new
// version that are reached by different names do not take them from each other.
func namesOf(certificate *x509.Certificate, names []string) []string {
	all := slices.Clone(names)
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, name := range certificate.DNSNames {
		add(name)
	}
	for _, ip := range certificate.IPAddresses {
		add(ip.String())
	}
	return all
}
