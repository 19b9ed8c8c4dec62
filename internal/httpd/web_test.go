package httpd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// authority signs certificates, each with its own key, as a site's does.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t}
	a.cert, a.key, a.pem, _ = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue makes a certificate, which is its own issuer's while there is none. It returns both
// parts as files have them.
func (a *authority) issue(c *x509.Certificate) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func (a *authority) server(name string) (cert, key []byte) {
	_, _, cert, key = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return cert, key
}

func (a *authority) client() tls.Certificate {
	_, _, cert, key := a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "prometheus"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// site is a folder with a node's certificate and its web.yaml.
type site struct {
	t   *testing.T
	dir string
}

func (s site) write(name string, text []byte) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

const webConfig = "tls_server_config: {cert_file: node.crt, key_file: node.key, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.crt}\n"

// serveWeb serves "ok" for those whom the site's web.yaml lets in.
func serveWeb(t *testing.T, s site, log *slog.Logger) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	go func() { ended <- ServeWeb(ctx, l, ok, "metrics", filepath.Join(s.dir, "web.yaml"), log) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving ended: %v", err)
		}
	})
	return l.Addr().String()
}

// fetch gets a page, on a connection of its own.
func fetch(url string, c *tls.Config, user ...string) (body string, status int, name string, err error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", 0, "", err
	}
	if len(user) == 2 {
		req.SetBasicAuth(user[0], user[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.TLS != nil {
		name = resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	return string(b), resp.StatusCode, name, err
}

// Metrics over TLS are for those with a certificate of the site's authority, and for nobody
// else; a new certificate of the node counts from the next connection on.
func TestWebTLS(t *testing.T) {
	ours, theirs := newAuthority(t, "site"), newAuthority(t, "elsewhere")
	s := site{t, t.TempDir()}
	cert, key := ours.server("leaf0")
	s.write("node.crt", cert)
	s.write("node.key", key)
	s.write("ca.crt", ours.pem)
	s.write("web.yaml", []byte(webConfig))
	if err := CheckWeb(filepath.Join(s.dir, "web.yaml"), "telemetry.web_config"); err != nil {
		t.Fatal(err)
	}
	address := serveWeb(t, s, slog.New(slog.DiscardHandler))
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	with := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots, ServerName: "leaf0", Certificates: certs}
	}
	if body, status, name, err := fetch("https://"+address+"/metrics", with(ours.client())); err != nil || body != "ok" || status != http.StatusOK || name != "leaf0" {
		t.Errorf("with a certificate: %q, %d of %s, %v", body, status, name, err)
	}
	old := with(ours.client())
	old.MaxVersion = tls.VersionTLS11 //nolint:gosec // what is refused
	for name, c := range map[string]*tls.Config{"without a certificate": with(), "with one of another authority": with(theirs.client()), "with TLS 1.1": old} {
		if body, status, _, err := fetch("https://"+address+"/metrics", c); err == nil {
			t.Errorf("%s: %q, %d", name, body, status)
		}
	}
	if body, status, _, err := fetch("http://"+address+"/metrics", nil); err == nil && (status == http.StatusOK || strings.Contains(body, "ok")) {
		t.Errorf("without TLS: %q, %d", body, status)
	}

	cert, key = ours.server("leaf0.new")
	s.write("node.crt", cert)
	s.write("node.key", key)
	c := with(ours.client())
	c.ServerName = "leaf0.new"
	if _, _, name, err := fetch("https://"+address+"/metrics", c); err != nil || name != "leaf0.new" {
		t.Errorf("after the certificate was replaced: %q, %v", name, err)
	}
}

// A user with a password, without TLS: for a site with an authority of another kind.
func TestWebUsers(t *testing.T) {
	s := site{t, t.TempDir()}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	s.write("web.yaml", fmt.Appendf(nil, "basic_auth_users: {prometheus: %q}\n", hash))
	address := serveWeb(t, s, slog.New(slog.DiscardHandler))
	if _, status, _, err := fetch("http://"+address+"/metrics", nil); err != nil || status != http.StatusUnauthorized {
		t.Errorf("nobody: %d, %v", status, err)
	}
	if _, status, _, err := fetch("http://"+address+"/metrics", nil, "prometheus", "wrong"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("a wrong password: %d, %v", status, err)
	}
	if body, status, _, err := fetch("http://"+address+"/metrics", nil, "prometheus", "secret"); err != nil || body != "ok" || status != http.StatusOK {
		t.Errorf("the password: %q, %d, %v", body, status, err)
	}
}

// What is wrong with the file is found before anybody is served, and named.
func TestWebConfigIsChecked(t *testing.T) {
	ours := newAuthority(t, "site")
	cert, key := ours.server("leaf0")
	_, other := ours.server("leaf1")
	for name, tt := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"no file":          {nil, "no such file"},
		"a typo":           {map[string][]byte{"web.yaml": []byte("tls_config: {}\n")}, "tls_config"},
		"no certificate":   {map[string][]byte{"web.yaml": []byte(webConfig)}, "node.crt"},
		"another's key":    {map[string][]byte{"web.yaml": []byte(webConfig), "node.crt": cert, "node.key": other, "ca.crt": ours.pem}, "private key does not match"},
		"no authority":     {map[string][]byte{"web.yaml": []byte(webConfig), "node.crt": cert, "node.key": key}, "ca.crt"},
		"nobody lets them": {map[string][]byte{"web.yaml": bytes.ReplaceAll([]byte(webConfig), []byte("RequireAndVerifyClientCert"), []byte("Sometimes")), "node.crt": cert, "node.key": key, "ca.crt": ours.pem}, "Sometimes"},
	} {
		s := site{t, t.TempDir()}
		for file, text := range tt.files {
			s.write(file, text)
		}
		file := filepath.Join(s.dir, "web.yaml")
		err := CheckWeb(file, "telemetry.web_config")
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "telemetry.web_config: "+file) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
