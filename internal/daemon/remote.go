package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/httpd"
)

// remoteTLS returns the files that the admin API is served with to other machines.
func (n *node) remoteTLS() httpd.TLS {
	t := &n.common.Admin.TLS
	return httpd.TLS{Cert: t.CertFile, Key: t.KeyFile, ClientCA: t.CAFile, Clients: t.Clients}
}

// listenRemote opens the listener for other machines; nil, nil: there is none. It holds no
// TLS yet, so that a successor can have it.
func (n *node) listenRemote(h *heir) (net.Listener, error) {
	address := n.common.Admin.TLS.Listen
	if config.Off(address) {
		return nil, nil
	}
	l, err := listenAt(h, listenAdminTLS, address, func() (net.Listener, error) {
		return httpd.Listen(address, "the admin API for other machines", "admin.tls.listen")
	})
	if err != nil {
		return nil, err
	}
	if _, err := n.remoteTLS().Listener(l); err != nil {
		l.Close()
		return nil, fmt.Errorf("admin.tls: %w", err)
	}
	return l, nil
}

// serveRemote serves the admin API to other machines. They only read, whatever the API
// lets those do who are on this one.
func (n *node) serveRemote(ctx context.Context, l net.Listener, api http.Handler, log *slog.Logger) error {
	secure, err := n.remoteTLS().Listener(l)
	if err != nil {
		return fmt.Errorf("admin.tls: %w", err)
	}
	return httpd.Serve(ctx, secure, readOnly(api), "the admin API for other machines", log)
}

// readOnly refuses what is not a question.
func readOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			httpd.WriteJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": r.Method + " is not possible from another machine: use the admin socket"})
			return
		}
		h.ServeHTTP(w, r)
	})
}
