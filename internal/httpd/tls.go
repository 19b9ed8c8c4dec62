package httpd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// TLS are the files by which a server and its clients prove to each other who they are.
type TLS struct {
	Cert, Key string // the server's own
	ClientCA  string // who signs the clients' certificates; "": anybody may connect
	// Clients are the names that clients' certificates may have (DNS names or the
	// subject's common name). Without any, every certificate of ClientCA's will do.
	Clients []string
}

// Listener wraps a listener. The files are read now, and again when they have changed:
// certificates are renewed without a restart. What cannot be read then is logged by the
// server as a failed handshake, and nobody is let in.
func (t TLS) Listener(l net.Listener) (net.Listener, error) {
	k := &keeper{TLS: t}
	if _, err := k.current(nil); err != nil {
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{GetConfigForClient: k.current, MinVersion: tls.VersionTLS13}), nil
}

// keeper has what was read of the files last.
type keeper struct {
	TLS

	mu     sync.Mutex
	config *tls.Config
	read   [3]time.Time // when the files were changed
}

func (k *keeper) current(*tls.ClientHelloInfo) (*tls.Config, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var changed [3]time.Time
	for i, name := range []string{k.Cert, k.Key, k.ClientCA} {
		if name == "" {
			continue
		}
		st, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		changed[i] = st.ModTime()
	}
	if k.config != nil && changed == k.read {
		return k.config, nil
	}
	c, err := k.load()
	if err != nil {
		return nil, err
	}
	k.config, k.read = c, changed
	return c, nil
}

func (t TLS) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: certificate %s and key %s: %w", t.Cert, t.Key, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	if t.ClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("tls: who signs clients: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls: %s has no certificate in PEM", t.ClientCA)
	}
	if len(t.Clients) > 0 {
		c.VerifyConnection = t.known
	}
	return c, nil
}

// known refuses clients with other names.
func (t TLS) known(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the client has no certificate")
	}
	cert := s.PeerCertificates[0]
	for _, name := range append(slices.Clone(cert.DNSNames), cert.Subject.CommonName) {
		if name != "" && slices.Contains(t.Clients, name) {
			return nil
		}
	}
	return fmt.Errorf("the client is %s (%s), and not one of %s", cert.Subject, strings.Join(cert.DNSNames, ", "), strings.Join(t.Clients, ", "))
}
