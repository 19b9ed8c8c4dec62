package machine

import (
	"errors"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/internal/testenv"
)

// Tap is an interface of a namespace whose other end is a machine's device. It exists
// as long as the machine.
type Tap struct{ queues []*os.File }

// TapOptions are the properties of a tap.
type TapOptions struct {
	Queues int // of each direction; 0: 1
	MTU    int // 0: 1500
	// Header has each frame carry virtio's header, which says what is to be done yet:
	// checksums, segments. Without it both sides hand over whole frames.
	Header bool
}

// NewTap makes a tap in a namespace and sets it up.
func NewTap(t testing.TB, ns *testenv.Namespace, name string, opt TapOptions) *Tap {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Queues: max(opt.Queues, 1), NonPersist: true}
	tap.Flags = netlink.TUNTAP_NO_PI
	if opt.Queues > 1 {
		tap.Flags |= netlink.TUNTAP_MULTI_QUEUE
	}
	if opt.Header {
		tap.Flags |= netlink.TUNTAP_VNET_HDR
	}
	ns.Do(t, func() {
		err := netlink.LinkAdd(tap)
		if err == nil && opt.MTU != 0 {
			err = netlink.LinkSetMTU(tap, opt.MTU)
		}
		if err != nil {
			t.Fatalf("make tap %s in %s with MTU %d: %v", name, ns.Name, opt.MTU, err)
		}
	})
	ns.SetUp(t, name, true)
	return &Tap{queues: tap.Fds}
}

func (t *Tap) close() (err error) {
	for _, q := range t.queues {
		err = errors.Join(err, q.Close())
	}
	return err
}
