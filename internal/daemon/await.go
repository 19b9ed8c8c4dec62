package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/control/bridge"
	"github.com/loomfabric/loom/internal/events"
)

const (
	// deviceLook is how often a start that waits for a VXLAN device looks for one.
	deviceLook = 250 * time.Millisecond
	// startRoom is what a service manager is asked for at each look, beyond it.
	startRoom = 10 * time.Second
)

// waits reports whether the node's overlay is the kernel's, and the kernel has none yet.
func (n *node) waits() bool { return n.model != nil && !n.model.VTEP.IsValid() }

// noDevice is why a node cannot start yet: see waits.
type noDevice struct{ *node }

func (noDevice) Error() string {
	return "the overlay is the kernel's, and there is no VXLAN device yet that leafd can work with"
}

// awaitDevice waits until the kernel has an overlay, if the file says that it is the
// kernel's: at boot who makes it may be late. Until ctx ends, nothing else keeps it from
// waiting; what else is wrong is for others to find. Reload has the file read again.
func (k Kind) awaitDevice(ctx context.Context, n *node, file string, reload <-chan os.Signal) error {
	log := n.logger(slog.LevelInfo, events.NewRing(1)) // nobody can ask yet
	m := manager{log: log}
	log.Warn("waits for a VXLAN device in a bridge, and begins when there is one; the kernel forwards meanwhile, if it can", "fix", noDeviceFix)
	tick := time.NewTicker(deviceLook)
	defer tick.Stop()
	for {
		m.notify("STATUS=waiting for a VXLAN device in a bridge", fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (deviceLook+startRoom).Microseconds()))
		select {
		case <-ctx.Done():
			log.Info("stopped")
			return nil
		case <-reload:
			switch _, _, err := k.prepare(file, false); {
			case err == nil:
				return nil
			case !errors.As(err, new(noDevice)):
				log.Error("the file is not right; it waits on", "file", file, "err", err)
			}
		case <-tick.C:
			found, _, err := bridge.Inspect(bpf.Ours)
			if err != nil {
				return err
			}
			if found.VTEP.IsValid() {
				log.Info("there is a VXLAN device: begins", "vtep", found.VTEP)
				return nil
			}
		}
	}
}
