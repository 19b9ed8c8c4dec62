package lab

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/ethtool"
)

// The functions of this file act in the calling thread's namespace; see [Lab.in].

// withLink calls fn with an interface, and says what failed on it.
func withLink(name, what string, fn func(netlink.Link) error) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = fn(link)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", name, what, err)
	}
	return nil
}

// setUp brings an interface up.
func setUp(name string) error { return withLink(name, "bring it up", netlink.LinkSetUp) }

// setDown takes an interface down; its peer loses carrier.
func setDown(name string) error { return withLink(name, "take it down", netlink.LinkSetDown) }

// addAddr gives an interface an address.
func addAddr(name, cidr string) error {
	return withLink(name, "address "+cidr, func(link netlink.Link) error {
		a, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD // addresses are ours; do not wait a second
		}
		return netlink.AddrReplace(link, a)
	})
}

// pfifo puts a real queue before a veth. Without one (noqueue, the default) the
// kernel drops silently when the peer's ring is full; with one it makes the sender
// wait.
func pfifo(name string) error {
	return withLink(name, "pfifo", func(link netlink.Link) error {
		return netlink.QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: rootOf(link), QdiscType: "pfifo"})
	})
}

// tbf shapes an interface's egress in the kernel: rate in bits per second, limit
// in bytes queued.
func tbf(name string, rate uint64, limit uint32) error {
	burst := max(uint32(rate/8/1000), 16<<10) // 1 ms, as the daemons' default
	return withLink(name, "tbf", func(link netlink.Link) error {
		return netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: rootOf(link), Rate: rate / 8, Limit: limit, Buffer: netlink.Xmittime(rate/8, burst)})
	})
}

// rootOf returns the attributes of an interface's own queueing discipline.
func rootOf(link netlink.Link) netlink.QdiscAttrs {
	return netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
}

// without turns offloads of an interface of the calling thread's namespace off.
//
// Hosts have the kernel's default offloads: leafd finishes their checksums and reads
// the VLAN tags that a veth passes on beside the frames, and the kernel segments for a
// veth whose peer has an XDP program.
//
// The fabric's links stand for network cards and cables, by which no checksum leaves
// unfinished: not those of hosts inside the VXLAN of a leaf's kernel, either.
func without(name string, offloads ...ethtool.Feature) error {
	s, err := ethtool.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	for _, f := range offloads {
		if err := s.Set(name, f, false); err != nil {
			return err
		}
	}
	return nil
}

// tagVLAN makes an interface send and receive tagged frames while its stack sees
// untagged ones. Two small tc programs do it. A VLAN interface would need 8021q,
// which small kernels lack.
func tagVLAN(name string, vid uint16) error {
	return withLink(name, fmt.Sprintf("VLAN %d", vid), func(link netlink.Link) error {
		index := link.Attrs().Index
		clsact := &netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)},
			QdiscType:  "clsact",
		}
		if err := netlink.QdiscReplace(clsact); err != nil {
			return fmt.Errorf("clsact: %w", err)
		}
		return errors.Join(
			attach(index, "loom_push", netlink.HANDLE_MIN_EGRESS, pushVLAN(vid)),
			attach(index, "loom_pop", netlink.HANDLE_MIN_INGRESS, popVLAN(vid)))
	})
}

// attach loads a tc program and attaches it to an interface.
func attach(index int, name string, parent uint32, code asm.Instructions) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: code, License: "GPL"})
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	defer prog.Close() // the filter holds it
	err = netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs:  netlink.FilterAttrs{LinkIndex: index, Parent: parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd:           prog.FD(),
		Name:         name,
		DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("attach %s: %w", name, err)
	}
	return nil
}

// Offsets in struct __sk_buff and tc verdicts.
const (
	skbVLANPresent = 20
	skbVLANTCI     = 24
	actOK          = 0
	actShot        = 2
)

func pushVLAN(vid uint16) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(binary.NativeEndian.Uint16([]byte{0x81, 0x00}))), // htons(ETH_P_8021Q)
		asm.Mov.Imm(asm.R3, int32(vid)),
		asm.FnSkbVlanPush.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R0, actOK),
		asm.Return(),
		asm.Mov.Imm(asm.R0, actShot).WithSymbol("drop"),
		asm.Return(),
	}
}

// popVLAN takes the tag off, and drops frames without it.
func popVLAN(vid uint16) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, skbVLANPresent, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "drop"),
		asm.LoadMem(asm.R2, asm.R1, skbVLANTCI, asm.Word),
		asm.And.Imm(asm.R2, 0xfff),
		asm.JNE.Imm(asm.R2, int32(vid), "drop"),
		asm.FnSkbVlanPop.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R0, actOK),
		asm.Return(),
		asm.Mov.Imm(asm.R0, actShot).WithSymbol("drop"),
		asm.Return(),
	}
}
