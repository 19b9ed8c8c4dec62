package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/testenv/certs"
)

// TestAdminForOtherMachines: who has a certificate with the right name is answered, and
// nobody else; nobody changes anything; a new certificate counts without a restart.
func TestAdminForOtherMachines(t *testing.T) {
	ours, theirs := certs.NewCA(t), certs.NewCA(t)
	cert, key := ours.Sign(t, "leaf1")
	n := remoteNode(t, fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s, client_ca_file: %s, client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [loomweb]}\n", cert, key, ours.File))
	l, err := n.listenRemote(nil)
	if err != nil {
		t.Fatal(err)
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httpd.WriteJSON(w, http.StatusOK, r.Method) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.serveRemote(ctx, l, api, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	client := func(ca, signer *certs.CA, name string) *tls.Config {
		t.Helper()
		f := admin.TLSFiles{CA: ca.File}
		f.Cert, f.Key = signer.Sign(t, name)
		c, err := f.Client()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c *tls.Config, method string) (string, error) {
		t.Helper()
		a, err := admin.NewClient("https://"+l.Addr().String(), c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if method == http.MethodPost {
			b, err := a.Post(ctx, "config", nil, nil)
			return string(b), err
		}
		b, err := a.Get(ctx, "status", nil)
		return string(b), err
	}
	good := client(ours, ours, "loomweb")
	if b, err := ask(good, http.MethodGet); err != nil || !strings.Contains(b, "GET") {
		t.Errorf("who may ask: %s, %v", b, err)
	}
	if b, err := ask(good, http.MethodPost); err == nil || !strings.Contains(err.Error(), "admin socket") {
		t.Errorf("who changes something: %s, %v", b, err)
	}
	for name, c := range map[string]*tls.Config{
		"another name": client(ours, ours, "somebody"), "another authority": client(ours, theirs, "loomweb"),
		"no certificate": {RootCAs: good.RootCAs}, "a node that is another's": client(theirs, ours, "loomweb"),
	} {
		if b, err := ask(c, http.MethodGet); err == nil {
			t.Errorf("%s: %s", name, b)
		}
	}
	// The certificate is renewed, by an authority that the client does not know.
	other, otherKey := theirs.Sign(t, "leaf1")
	for from, to := range map[string]string{other: cert, otherKey: key} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if later := time.Now().Add(time.Minute); err == nil {
			err = os.Chtimes(to, later, later)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err := ask(good, http.MethodGet); err == nil {
		t.Errorf("the old certificate is still shown: %s", b)
	}
	if b, err := ask(client(theirs, ours, "loomweb"), http.MethodGet); err != nil {
		t.Errorf("the new certificate: %s, %v", b, err)
	}
	// The file asks nobody for a certificate any more.
	if err := os.WriteFile(n.common.Admin.Remote.WebConfig, fmt.Appendf(nil, "tls_server_config: {cert_file: %s, key_file: %s}\n", cert, key), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := ask(&tls.Config{RootCAs: client(theirs, ours, "loomweb").RootCAs}, http.MethodGet); err == nil || !strings.Contains(err.Error(), "client_auth_type") {
		t.Errorf("without a certificate, after the file ceased to ask for one: %s, %v", b, err)
	}
}

// remoteNode is one that other machines may ask, as a web_config says.
func remoteNode(t *testing.T, text string) *node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &node{common: config.Common{Admin: config.Admin{Remote: config.AdminRemote{Listen: "127.0.0.1:0", WebConfig: file}}}}
}

// TestAdminRemoteFiles: files that cannot be used, or let anybody in, are found before
// the node forwards.
func TestAdminRemoteFiles(t *testing.T) {
	ca := certs.NewCA(t)
	cert, key := ca.Sign(t, "leaf1")
	for want, text := range map[string]string{
		"/nowhere":                     "tls_server_config: {cert_file: /nowhere, key_file: " + key + "}\n",
		"does not ask clients":         fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s}\n", cert, key),
		"ask clients for certificates": "",
	} {
		l, err := remoteNode(t, text).listenRemote(nil)
		if err == nil {
			l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "admin.remote.web_config") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
