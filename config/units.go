package config

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// MAC is an Ethernet address, written as in "02:00:00:00:00:01".
type MAC [6]byte

// Prefix is an IP prefix; a bare address stands for the prefix of that one
// address.
type Prefix struct{ netip.Prefix }

// Polling is a [dataplane.Polling] by name.
type Polling dataplane.Polling

// XDPMode is a [dataplane.XDPMode] by name.
type XDPMode dataplane.XDPMode

// CopyMode is a [dataplane.CopyMode] by name.
type CopyMode dataplane.CopyMode

// ReversePath is a [dataplane.ReversePath] by name.
type ReversePath dataplane.ReversePath

// FastPath is a [dataplane.FastMode] by name.
type FastPath dataplane.FastMode

// Fail says what becomes of an access port's frames while no worker serves them, by
// name.
type Fail uint8

// What Fail can say.
const (
	FailClosed Fail = iota
	FailOpen
)

// Overlay says who has the overlay of a leaf, by name.
type Overlay uint8

// What Overlay can say.
const (
	OverlayFile Overlay = iota
	OverlayKernel
)

var (
	reversePaths = []string{"strict", "feasible", "off"} // by dataplane.ReversePath
	fails        = []string{"closed", "open"}
	overlays     = []string{"file", "kernel"}

	pollings  = []string{"adaptive", "busy", "interrupt"} // by dataplane.Polling
	xdpModes  = []string{"auto", "native", "generic"}     // by dataplane.XDPMode
	copyModes = []string{"auto", "zerocopy", "copy"}      // by dataplane.CopyMode
	fastPaths = []string{"off", "auto", "on"}             // by dataplane.FastMode
	logLevels = []string{"debug", "info", "warn", "error"}
)

// UnmarshalText reads an Ethernet address.
func (m *MAC) UnmarshalText(b []byte) error {
	hw, err := net.ParseMAC(string(b))
	if err != nil || len(hw) != len(m) {
		return fmt.Errorf("MAC address %q is malformed; write it as in 02:00:00:00:00:01", b)
	}
	*m = MAC(hw)
	return nil
}

// MarshalText writes the address with colons.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// String is the text that UnmarshalText reads.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// UnmarshalText reads an address or a prefix.
func (p *Prefix) UnmarshalText(b []byte) error {
	s := string(b)
	if a, err := netip.ParseAddr(s); err == nil {
		p.Prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	q, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Errorf("%q is neither an address nor a prefix; write it as in 10.0.0.1 or 10.0.0.0/24", s)
	}
	p.Prefix = q
	return nil
}

// MarshalText writes the prefix, a single address without its length.
func (p Prefix) MarshalText() ([]byte, error) {
	if p.IsValid() && p.IsSingleIP() {
		return []byte(p.Addr().String()), nil
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads a mode's name.
func (p *Polling) UnmarshalText(b []byte) error {
	i, err := yamlfile.Choose("polling mode", b, pollings)
	*p = Polling(i)
	return err
}

// MarshalText writes the mode's name.
func (p Polling) MarshalText() ([]byte, error) { return []byte(pollings[p]), nil }

// UnmarshalText reads a mode's name.
func (x *XDPMode) UnmarshalText(b []byte) error {
	i, err := yamlfile.Choose("XDP mode", b, xdpModes)
	*x = XDPMode(i)
	return err
}

// MarshalText writes the mode's name.
func (x XDPMode) MarshalText() ([]byte, error) { return []byte(xdpModes[x]), nil }

// UnmarshalText reads a mode's name.
func (f *FastPath) UnmarshalText(b []byte) error {
	i, err := yamlfile.Choose("fast path", b, fastPaths)
	*f = FastPath(i)
	return err
}

// MarshalText writes the mode's name.
func (f FastPath) MarshalText() ([]byte, error) { return []byte(fastPaths[f]), nil }

// UnmarshalText reads a mode's name.
func (c *CopyMode) UnmarshalText(b []byte) error {
	i, err := yamlfile.Choose("copy mode", b, copyModes)
	*c = CopyMode(i)
	return err
}

// MarshalText writes the mode's name.
func (c CopyMode) MarshalText() ([]byte, error) { return []byte(copyModes[c]), nil }

// UnmarshalText reads a check's name.
func (r *ReversePath) UnmarshalText(b []byte) error {
	i, err := yamlfile.Choose("reverse path check", b, reversePaths)
	*r = ReversePath(i)
	return err
}

// MarshalText writes the check's name.
func (r ReversePath) MarshalText() ([]byte, error) { return []byte(reversePaths[r]), nil }

// UnmarshalText reads what becomes of frames.
func (f *Fail) UnmarshalText(b []byte) error {
	i, err := yamlfile.Choose("way to fail", b, fails)
	*f = Fail(i)
	return err
}

// MarshalText writes what becomes of frames.
func (f Fail) MarshalText() ([]byte, error) { return []byte(fails[f]), nil }

// UnmarshalText reads who has the overlay.
func (o *Overlay) UnmarshalText(b []byte) error {
	i, err := yamlfile.Choose("overlay", b, overlays)
	*o = Overlay(i)
	return err
}

// MarshalText writes who has the overlay.
func (o Overlay) MarshalText() ([]byte, error) { return []byte(overlays[o]), nil }
