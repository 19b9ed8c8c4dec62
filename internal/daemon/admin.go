package daemon

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/httpd"
)

// listenAdmin opens the socket of the admin API; nil, nil: there is none. A
// socket that the file names must be had. The standard one, which nobody had to
// write, is there for convenience: a node that cannot have it forwards without.
func listenAdmin(address string, standard bool, log *slog.Logger) (net.Listener, error) {
	if standard {
		// If this fails, so does what follows, and says what to do.
		_ = os.MkdirAll(filepath.Dir(strings.TrimPrefix(address, "unix:")), 0o755)
	}
	l, err := httpd.Listen(address, "the admin API", "admin.listen")
	if err != nil && standard {
		log.Warn("no admin API: loomctl will not work", "err", err)
		return nil, nil
	}
	return l, err
}

// standardAdmin reports whether an address is one that nobody had to write.
func standardAdmin(address string) bool {
	return address == config.DefaultLeafAdmin || address == config.DefaultSpineAdmin
}
