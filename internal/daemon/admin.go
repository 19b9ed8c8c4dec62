package daemon

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/telemetry"
)

// listenAdmin opens the socket of the admin API; nil, nil: there is none. A
// socket that the file names must be had. The standard one is there for
// convenience: a node that cannot have it forwards without.
func listenAdmin(address string, standard bool, log *slog.Logger) (net.Listener, error) {
	if config.Off(address) {
		return nil, nil
	}
	path := strings.TrimPrefix(address, "unix:")
	if standard {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Warn("no admin API: loomctl will not work", "err", err, "fix", "create the directory, or set admin.listen")
			return nil, nil
		}
	}
	l, err := telemetry.ListenUnix(path, "the admin API", "admin.listen")
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

// adminServer returns the server of the admin API.
func (k Kind) adminServer(n *node, plane *dataplane.Node, mirror *control.Mirror, log *slog.Logger) *admin.Server {
	return admin.NewServer(admin.Options{
		Name: n.dp.Name, Role: k.name, Leaf: n.dp.Role == dataplane.Leaf, Version: k.version,
		Node: plane, Tables: mirror.Tables, Ports: n.dp.Ports, Log: log,
	})
}
