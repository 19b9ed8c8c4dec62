package httpd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/loomfabric/loom/internal/testenv/certs"
)

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sign returns a certificate and its key as files have them.
func sign(t *testing.T, ca *certs.CA, name string) (cert, key []byte) {
	t.Helper()
	certFile, keyFile := ca.Sign(t, name)
	return read(t, certFile), read(t, keyFile)
}

// signed returns a certificate for one who asks.
func signed(t *testing.T, ca *certs.CA) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(sign(t, ca, "prometheus"))
	if err != nil {
		t.Fatal(err)
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
	ours, theirs := certs.NewCA(t), certs.NewCA(t)
	s := site{t, t.TempDir()}
	cert, key := sign(t, ours, "leaf0")
	s.write("node.crt", cert)
	s.write("node.key", key)
	s.write("ca.crt", read(t, ours.File))
	s.write("web.yaml", []byte(webConfig))
	if err := CheckWeb(filepath.Join(s.dir, "web.yaml"), "telemetry.web_config"); err != nil {
		t.Fatal(err)
	}
	address := serveWeb(t, s, slog.New(slog.DiscardHandler))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, ours.File))
	with := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots, ServerName: "leaf0", Certificates: certs}
	}
	if body, status, name, err := fetch("https://"+address+"/metrics", with(signed(t, ours))); err != nil || body != "ok" || status != http.StatusOK || name != "leaf0" {
		t.Errorf("with a certificate: %q, %d of %s, %v", body, status, name, err)
	}
	old := with(signed(t, ours))
	old.MaxVersion = tls.VersionTLS11 //nolint:gosec // what is refused
	for name, c := range map[string]*tls.Config{"without a certificate": with(), "with one of another authority": with(signed(t, theirs)), "with TLS 1.1": old} {
		if body, status, _, err := fetch("https://"+address+"/metrics", c); err == nil {
			t.Errorf("%s: %q, %d", name, body, status)
		}
	}
	if body, status, _, err := fetch("http://"+address+"/metrics", nil); err == nil && (status == http.StatusOK || strings.Contains(body, "ok")) {
		t.Errorf("without TLS: %q, %d", body, status)
	}

	cert, key = sign(t, ours, "leaf0.new")
	s.write("node.crt", cert)
	s.write("node.key", key)
	c := with(signed(t, ours))
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
	ours := certs.NewCA(t)
	cert, key := sign(t, ours, "leaf0")
	_, other := sign(t, ours, "leaf1")
	for name, tt := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"no file":          {nil, "no such file"},
		"a typo":           {map[string][]byte{"web.yaml": []byte("tls_config: {}\n")}, "tls_config"},
		"no certificate":   {map[string][]byte{"web.yaml": []byte(webConfig)}, "node.crt"},
		"another's key":    {map[string][]byte{"web.yaml": []byte(webConfig), "node.crt": cert, "node.key": other, "ca.crt": read(t, ours.File)}, "private key does not match"},
		"no authority":     {map[string][]byte{"web.yaml": []byte(webConfig), "node.crt": cert, "node.key": key}, "ca.crt"},
		"nobody lets them": {map[string][]byte{"web.yaml": bytes.ReplaceAll([]byte(webConfig), []byte("RequireAndVerifyClientCert"), []byte("Sometimes")), "node.crt": cert, "node.key": key, "ca.crt": read(t, ours.File)}, "Sometimes"},
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
