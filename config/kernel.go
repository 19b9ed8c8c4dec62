package config

import (
	"net/netip"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// Kernel is what the machine's bridges and VXLAN devices say of a leaf's overlay.
type Kernel struct {
	VTEP   netip.Addr
	Port   uint16 // UDP
	VNIs   []KernelVNI
	Peers  []netip.Addr
	Access []Access
}

// KernelVNI is a network of the kernel's.
type KernelVNI struct {
	VNI    uint32
	Ageing time.Duration // of its addresses; 0: they do not age
}

// kernelRoom is how many ports a leaf whose overlay is the kernel's has room for besides
// those that it starts with: bridges get and lose ports as virtual machines come and go.
const kernelRoom = 12

// Complete returns the leaf with what the kernel says of its overlay. The leaf itself
// stays as it is.
func (l *Leaf) Complete(k *Kernel) *Leaf {
	c := *l
	c.VTEP, c.Peers, c.Access = k.VTEP, k.Peers, k.Access
	if k.Port != 0 {
		c.VXLANPort = k.Port
	}
	c.VNIs = make([]VNI, len(k.VNIs))
	for i, v := range k.VNIs {
		c.VNIs[i] = VNI{VNI: v.VNI, Flood: []netip.Addr{}, Refresh: refresh(v.Ageing)}
	}
	if c.MaxPorts == 0 {
		c.MaxPorts = min(len(c.Uplinks)+len(c.Access)+kernelRoom, dataplane.MaxPorts)
	}
	c.fill()
	return &c
}

// refresh returns how often a bridge has to see a frame of a source, so that it does not
// forget it: several times in its ageing time. 0: the data plane's default will do.
func refresh(ageing time.Duration) time.Duration {
	if ageing == 0 || ageing >= time.Minute {
		return 0
	}
	return max(ageing/4, 100*time.Millisecond)
}
