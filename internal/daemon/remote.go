package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/httpd"
)

// listenRemote opens the listener for other machines; nil, nil: there is none.
func (n *node) listenRemote(h *heir) (net.Listener, error) {
	r := &n.common.Admin.Remote
	if config.Off(r.Listen) {
		return nil, nil
	}
	if err := httpd.CheckWeb(r.WebConfig, "admin.remote.web_config"); err != nil {
		return nil, err
	}
	if certificates, _, err := httpd.WebGuards(r.WebConfig); err != nil || !certificates {
		return nil, errors.Join(fmt.Errorf("admin.remote.web_config: %s does not ask clients for certificates: give it client_auth_type RequireAndVerifyClientCert and client_ca_file", r.WebConfig), err)
	}
	return listenAt(h, listenAdminRemote, r.Listen, func() (net.Listener, error) {
		return httpd.Listen(r.Listen, "the admin API for other machines", "admin.remote.listen")
	})
}

// serveRemote serves the admin API to other machines. They only read, whatever the API
// lets those do who are on this one.
func (n *node) serveRemote(ctx context.Context, l net.Listener, api http.Handler, log *slog.Logger) error {
	return httpd.ServeWeb(ctx, l, certified(readOnly(api)), "the admin API for other machines", n.common.Admin.Remote.WebConfig, log)
}

// certified refuses who has shown no certificate that was verified. The file is read again
// for each connection, and may have ceased to ask for them since the start.
func certified(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			httpd.WriteJSON(w, http.StatusForbidden, map[string]string{"error": "the node answers those with a certificate: admin.remote.web_config has to say client_auth_type RequireAndVerifyClientCert"})
			return
		}
		h.ServeHTTP(w, r)
	})
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
