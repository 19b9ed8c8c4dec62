package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Kind is what a port faces. It selects the program.
type Kind uint8

// The kinds of port.
const (
	Access Kind = iota + 1 // leaf towards hosts: every frame is ours but link-local control
	Uplink                 // leaf towards spines: VXLAN to Config.VTEP is ours, and the spines' messages
	Spine                  // any port of a spine: VXLAN to Config.Remotes is ours, and the neighbours' messages
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

// Mode is how a program is attached.
type Mode uint8

// The modes. [Program.Attach] never returns Auto.
const (
	Auto    Mode = iota // Native, Generic if the driver cannot
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

// Config describes the classifier of one port. It cannot change once loaded:
// the values are constants to the verifier.
type Config struct {
	Kind      Kind
	VTEP      netip.Addr     // uplink: own VTEP, IPv4
	Remotes   []netip.Prefix // spine: prefixes of the leaves' VTEPs, IPv4
	VXLANPort uint16         // uplink and spine: UDP port
	Seed      uint32         // of the flow hash; the same as given to overlay.Dissect
	Queues    int            // receive queues, 1 to 4096
}

// maxQueues is the most that Linux lets an interface have.
const maxQueues = 4096

// check reports what is wrong with c, without touching the kernel.
func (c *Config) check() error {
	switch c.Kind {
	case Access:
	case Uplink:
		if !c.VTEP.Is4() {
			return fmt.Errorf("VTEP %v is not an IPv4 address: the underlay is IPv4", c.VTEP)
		}
	case Spine:
		if len(c.Remotes) == 0 {
			return fmt.Errorf("no VTEP prefixes: a spine must know which VXLAN is the fabric's")
		}
		for _, p := range c.Remotes {
			if !p.IsValid() || !p.Addr().Is4() {
				return fmt.Errorf("VTEP prefix %v is not an IPv4 prefix: the underlay is IPv4", p)
			}
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

// beAddr returns a's bytes as a 32-bit word that lies in memory as they do on
// the wire.
func beAddr(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}
