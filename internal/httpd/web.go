package httpd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/exporter-toolkit/web"
)

// CheckWeb reads a file in the format of Prometheus' exporters (TLS, client certificates,
// users), and the certificates and keys that it names. key is the configuration's, for errors.
func CheckWeb(file, key string) error {
	if err := web.Validate(file); err != nil {
		return fmt.Errorf("%s: %s: %w; the format is that of https://prometheus.io/docs/prometheus/latest/configuration/https", key, file, err)
	}
	return nil
}

// WebGuards says whether a file in the format of Prometheus' exporters lets in only those
// with a certificate that is verified, and whether it asks for a password.
func WebGuards(file string) (certificates, passwords bool, err error) {
	var c struct {
		TLS struct {
			Auth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
		Users map[string]string `yaml:"basic_auth_users"`
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	return c.TLS.Auth == "RequireAndVerifyClientCert", len(c.Users) > 0, err
}

// ServeWeb is [Serve] for those whom a file in the format of Prometheus' exporters lets in.
// The file, and the certificates that it names, are read again for each connection, so that
// they can be replaced while the daemon runs. No file ("") lets everybody in, without TLS.
func ServeWeb(ctx context.Context, l net.Listener, h http.Handler, what, file string, log *slog.Logger) error {
	if file == "" {
		return Serve(ctx, l, h, what, log)
	}
	return serveBy(ctx, l, h, what, log, func(s *http.Server, l net.Listener) error {
		return web.Serve(l, s, &web.FlagConfig{WebConfigFile: &file}, log)
	})
}
