package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// preflight looks for everything about this machine that would keep the node
// from working, and names the remedy. Warnings are for what works all the same.
func (s *settings) preflight() (warnings []error, err error) {
	errs := []error{checkPrivilege(), s.checkVTEP()}
	for i := range s.dataplane.Ports {
		p := &s.dataplane.Ports[i]
		errs = append(errs, s.checkMTU(p), checkFree(p.Name))
		w, e := s.checkQueues(p.Name)
		errs = append(errs, e)
		if w != nil {
			warnings = append(warnings, w)
		}
		if w := checkVLANOffload(p); w != nil {
			warnings = append(warnings, w)
		}
	}
	return warnings, errors.Join(errs...)
}

// checkPrivilege wants what bpf(2), AF_XDP and netlink ask for.
func checkPrivilege() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	has := func(c uint) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	if has(unix.CAP_NET_ADMIN) && has(unix.CAP_NET_RAW) && (has(unix.CAP_BPF) || has(unix.CAP_SYS_ADMIN)) {
		return nil
	}
	return errors.New("missing privilege: run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF " +
		"(systemd: AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_BPF)")
}

// checkVTEP wants a leaf's tunnel address to be the machine's: the kernel must
// answer for it, and takes over on it when the daemon is gone.
func (s *settings) checkVTEP() error {
	if s.dataplane.Role != dataplane.Leaf {
		return nil
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if a.IP.Equal(s.dataplane.VTEP.AsSlice()) {
			return nil
		}
	}
	return fmt.Errorf("vtep %v is not an address of this machine: `ip addr add %v/32 dev lo`", s.dataplane.VTEP, s.dataplane.VTEP)
}

// checkMTU wants frames to fit UMEM, and encapsulated ones the uplink.
func (s *settings) checkMTU(p *dataplane.PortConfig) error {
	mtu := s.links[p.Name].MTU
	if mtu > dataplane.LargestMTU {
		return fmt.Errorf("interface %s has MTU %d, but a packet must fit one page: at most %d; `ip link set dev %s mtu %d`",
			p.Name, mtu, dataplane.LargestMTU, p.Name, dataplane.LargestMTU)
	}
	if p.Kind != dataplane.Uplink {
		return nil
	}
	host, hostMTU := "", 0
	for i := range s.dataplane.Ports {
		a := &s.dataplane.Ports[i]
		if m := s.links[a.Name].MTU; a.Kind == dataplane.Access && m > hostMTU {
			host, hostMTU = a.Name, m
		}
	}
	if need := hostMTU + overlay.MTUOverhead; mtu < need {
		return fmt.Errorf("uplink %s has MTU %d, but packets of %s (MTU %d) grow by %d bytes in the tunnel: `ip link set dev %s mtu %d`, and the same on its peer",
			p.Name, mtu, host, hostMTU, overlay.MTUOverhead, p.Name, need)
	}
	return nil
}

// checkFree wants no XDP program on the interface.
func checkFree(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if x := l.Attrs().Xdp; x != nil && x.Attached {
		return fmt.Errorf("interface %s already has XDP program %d: is another leafd or spined running on it? "+
			"Stop it, or remove the program with `ip link set dev %s xdp off`", name, x.ProgId, name)
	}
	return nil
}

// checkQueues wants a queue for every worker, and warns of queues that no
// worker serves: their frames go to the kernel.
func (s *settings) checkQueues(name string) (warning, err error) {
	rx, err := filepath.Glob("/sys/class/net/" + name + "/queues/rx-*")
	if err != nil || len(rx) == 0 {
		return nil, nil //nolint:nilerr // sysfs is not mounted: opening the port finds out
	}
	workers := s.dataplane.Workers
	switch {
	case len(rx) < workers:
		return nil, fmt.Errorf("interface %s has %d receive queues for %d workers: `ethtool -L %s combined %d`, or `workers: %d`",
			name, len(rx), workers, name, workers, len(rx))
	case len(rx) > workers:
		return fmt.Errorf("interface %s has %d receive queues for %d workers: frames on the others go to the kernel; "+
			"`ethtool -L %s combined %d`, or `workers: %d`", name, len(rx), workers, name, workers, len(rx)), nil
	}
	return nil, nil
}

// checkVLANOffload warns of ports that take the tag off before XDP sees it:
// tagged frames then look untagged.
func checkVLANOffload(p *dataplane.PortConfig) error {
	if p.Kind != dataplane.Access || len(p.VLANs) == 0 && !p.Transparent {
		return nil
	}
	if _, err := os.Stat("/sys/class/net/" + p.Name + "/device"); err != nil {
		return nil // virtual: its peer's txvlan decides, which cannot be seen from here
	}
	on, err := rxVLANOffload(p.Name)
	if err != nil || !on {
		return nil //nolint:nilerr // the driver does not tell
	}
	return fmt.Errorf("interface %s strips VLAN tags in hardware, so that tagged frames look untagged: `ethtool -K %s rxvlan off`", p.Name, p.Name)
}
