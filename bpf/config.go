package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
)

// Kind is the role of a port. It selects the program.
type Kind uint8

// The kinds of port.
const (
	Access Kind = iota + 1 // leaf towards hosts: takes every frame but link-local control
	Uplink                 // leaf towards spines: takes VXLAN to Config.VTEP, and spines' messages
	Spine                  // any port of a spine: takes VXLAN that Config.Routes has, and neighbours' messages
)

// String returns the kind's name, "access", "uplink" or "spine".
func (k Kind) String() string {
	switch k {
	case Access:
		return "access"
	case Uplink:
		return "uplink"
	case Spine:
		return "spine"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Mode is the way to attach a program.
type Mode uint8

// The modes. [Program.Attach] never returns Auto.
const (
	Auto    Mode = iota // Native, or Generic if the driver has no XDP
	Native              // in the driver
	Generic             // in the network stack, on socket buffers
)

// String returns the mode's name, "auto", "native" or "generic".
func (m Mode) String() string {
	switch m {
	case Auto:
		return "auto"
	case Native:
		return "native"
	case Generic:
		return "generic"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Config describes the classifier of one port. It cannot change once the program is
// loaded, since the values are constants to the verifier.
type Config struct {
	Kind      Kind
	VTEP      netip.Addr // uplink: own VTEP
	Routes    *Routes    // spine: which VXLAN it takes
	VXLANPort uint16     // uplink and spine: UDP port
	Seed      uint32     // of the flow hash, as for overlay.Dissect
	// Closed, on an access port, drops the frames of queues that have no socket, and
	// keeps the program on the interface when its process ends, however it ends. So
	// nothing of a host reaches the node's own network stack. Without it they are the
	// kernel's, and the program goes with the process.
	Closed bool
	Queues int // receive queues, 1 to 4096
	// Device, on an access port, is the index of the one interface that the program is
	// for, in native mode. Where its driver tells which VLAN tags it took off, the
	// program puts them back. 0: it is for any interface, and for generic mode.
	Device int
	// Rule makes the program of an access port or an uplink one for a leaf whose overlay
	// is the kernel's (decision 0025): it asks the rule's tables, which the programs of a
	// node share, and gives the kernel what they do not know. nil: the overlay is the
	// node's own. Such programs need Linux 5.11.
	Rule *Rule
	// Fast makes the program of a spine's port, or of a port of a leaf with a VTEP of IPv4, one that
	// forwards by these tables, and gives user space the rest. It is for native mode: in generic mode frames must not be
	// forwarded by it, which is for the tables to say. nil: user space forwards all. Such
	// programs need Linux 5.11.
	Fast *Fast
	// AnySource has the fast path not hold sources against routes.
	AnySource bool
	// MultiBuffer lets frames be longer than a page, which the driver then spreads over
	// several buffers. The headers that the program reads are in the first. It needs Linux
	// 5.18, and goes without Fast.
	MultiBuffer bool
	Port        uint16 // its number: in [overlay.Dest] with a Rule, in the tables with Fast
}

func (c *Config) checkFast() error {
	switch f := c.Fast; {
	case f == nil:
	case len(f.maps) == 0:
		return fmt.Errorf("its fast path: %w", os.ErrClosed)
	case f.size.isLeaf() != (c.Kind != Spine):
		return fmt.Errorf("its fast path is for the other role: a leaf's tables have room for addresses, a spine's for next hops")
	case c.Kind == Uplink && !c.VTEP.Is4():
		return fmt.Errorf("its fast path: VTEP %v is not of IPv4", c.VTEP)
	case c.Rule != nil:
		return fmt.Errorf("its fast path: the overlay is the kernel's")
	case c.Queues > f.size.Queues || int(c.Port) >= f.size.Ports:
		return fmt.Errorf("port %d with %d queues: the fast path has room for %d ports with %d", c.Port, c.Queues, f.size.Ports, f.size.Queues)
	}
	return nil
}

// maxQueues is the most that Linux lets an interface have.
const maxQueues = 4096

// check reports the first field that makes no sense, without touching the kernel.
func (c *Config) check() error {
	if c.Device != 0 && c.Kind != Access {
		return fmt.Errorf("device %d: only programs of access ports are for one interface", c.Device)
	}
	if c.MultiBuffer && c.Fast != nil {
		return errors.New("a fast path and frames of several buffers: only the first buffer's bytes would be counted")
	}
	if err := c.checkFast(); err != nil {
		return err
	}
	if c.Rule != nil {
		switch {
		case c.Kind == Spine:
			return fmt.Errorf("a spine has no overlay: only a leaf's can be the kernel's")
		case c.Closed:
			return fmt.Errorf("the port is closed: where the overlay is the kernel's, it gets the frames that nobody serves")
		case c.Rule.addresses == nil:
			return fmt.Errorf("its rule: %w", os.ErrClosed)
		}
	}
	switch c.Kind {
	case Access:
	case Uplink:
		if !c.VTEP.IsValid() || c.VTEP.Is4In6() || c.VTEP.IsUnspecified() {
			return fmt.Errorf("VTEP %v is neither an IPv4 nor an IPv6 address", c.VTEP)
		}
	case Spine:
		if c.Routes == nil {
			return fmt.Errorf("no routes: a spine must know which VXLAN is the fabric's")
		}
	default:
		return fmt.Errorf("unknown kind of port: %v", c.Kind)
	}
	if c.Kind != Access && c.VXLANPort == 0 {
		return fmt.Errorf("VXLAN port is 0: usually it is 4789")
	}
	if c.Queues < 1 || c.Queues > maxQueues {
		return fmt.Errorf("%d queues: a port has 1 to %d", c.Queues, maxQueues)
	}
	return nil
}

// beAddr returns the bytes of an IPv4 address as a 32-bit word in wire order.
func beAddr(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// beAddr6 returns the bytes of an IPv6 address as 32-bit words in wire order.
func beAddr6(a netip.Addr) (words [4]uint32) {
	b := a.As16()
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return words
}
