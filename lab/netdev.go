package lab

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/ethtool"
)

// end is one end of a veth pair.
type end struct {
	in   *handle
	name string
	mac  net.HardwareAddr // nil: the kernel's choice
}

// connect makes a veth pair between two namespaces, with one queue (daemons run
// one worker), and leaves both ends down.
func connect(a, b end, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = a.name, a.mac, mtu
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerMTU = b.name, b.mac, uint32(mtu)
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = 1, 1
	veth.PeerNamespace = netlink.NsFd(b.in.ns)
	if err := a.in.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth %s/%s to %s/%s: %w", a.in.name, a.name, b.in.name, b.name, err)
	}
	return nil
}

// link returns an interface.
func (h *handle) link(name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", h.name, name, err)
	}
	return l, nil
}

// index returns an interface's index.
func (h *handle) index(name string) (int, error) {
	l, err := h.link(name)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}

// setUp brings an interface up.
func (h *handle) setUp(name string) error {
	l, err := h.link(name)
	if err != nil {
		return err
	}
	if err := h.LinkSetUp(l); err != nil {
		return fmt.Errorf("%s: bring %s up: %w", h.name, name, err)
	}
	return nil
}

// setDown takes an interface down; its peer loses carrier.
func (h *handle) setDown(name string) error {
	l, err := h.link(name)
	if err != nil {
		return err
	}
	if err := h.LinkSetDown(l); err != nil {
		return fmt.Errorf("%s: take %s down: %w", h.name, name, err)
	}
	return nil
}

// addAddr gives an interface an address.
func (h *handle) addAddr(name, cidr string) error {
	l, err := h.link(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(cidr)
	if err == nil {
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD // addresses are ours; do not wait a second
		}
		err = h.AddrReplace(l, a)
	}
	if err != nil {
		return fmt.Errorf("%s: address %s on %s: %w", h.name, cidr, name, err)
	}
	return nil
}

// pfifo puts a real queue before a veth. Without one (noqueue, the default) the
// kernel drops silently when the peer's ring is full; with one it makes the sender
// wait.
func (h *handle) pfifo(name string) error {
	return h.rootQdisc(name, func(root netlink.QdiscAttrs) netlink.Qdisc {
		return &netlink.GenericQdisc{QdiscAttrs: root, QdiscType: "pfifo"}
	})
}

// rootQdisc replaces an interface's queueing discipline.
func (h *handle) rootQdisc(name string, build func(root netlink.QdiscAttrs) netlink.Qdisc) error {
	index, err := h.index(name)
	if err != nil {
		return err
	}
	q := build(netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)})
	if err := h.QdiscReplace(q); err != nil {
		return fmt.Errorf("%s: %s on %s: %w", h.name, q.Type(), name, err)
	}
	return nil
}

// tbf shapes an interface's egress in the kernel: rate in bits per second, limit
// in bytes queued.
func (h *handle) tbf(name string, rate uint64, limit uint32) error {
	burst := max(uint32(rate/8/1000), 16<<10) // 1 ms, as the daemons' default
	return h.rootQdisc(name, func(root netlink.QdiscAttrs) netlink.Qdisc {
		return &netlink.Tbf{QdiscAttrs: root, Rate: rate / 8, Limit: limit, Buffer: netlink.Xmittime(rate/8, burst)}
	})
}

// noOffloads makes an interface of the calling thread's namespace send finished
// frames. With transmit checksum offload a veth passes on frames with an unfinished
// TCP or UDP checksum. That state lives in the skb: a frame that crosses an AF_XDP
// socket loses it and arrives broken. Segmentation offload would make frames larger
// than the MTU, and VLAN offload would keep the tag out of the frame's bytes.
func noOffloads(name string) error {
	s, err := ethtool.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	for _, f := range []ethtool.Feature{ethtool.TXChecksum, ethtool.TSO, ethtool.GSO, ethtool.TXVLAN} {
		if err := s.Set(name, f, false); err != nil {
			return err
		}
	}
	return nil
}

// tagVLAN makes an interface send and receive tagged frames while its stack sees
// untagged ones. Two small tc programs do it. A VLAN interface would need 8021q,
// which small kernels lack.
func (h *handle) tagVLAN(name string, vid uint16) error {
	index, err := h.index(name)
	if err != nil {
		return err
	}
	clsact := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)},
		QdiscType:  "clsact",
	}
	if err := h.QdiscReplace(clsact); err != nil {
		return fmt.Errorf("%s: clsact on %s: %w", h.name, name, err)
	}
	for _, p := range []struct {
		name   string
		parent uint32
		code   asm.Instructions
	}{
		{"loom_push", netlink.HANDLE_MIN_EGRESS, pushVLAN(vid)},
		{"loom_pop", netlink.HANDLE_MIN_INGRESS, popVLAN(vid)},
	} {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: p.name, Type: ebpf.SchedCLS, Instructions: p.code, License: "GPL"})
		if err != nil {
			return fmt.Errorf("load %s: %w", p.name, err)
		}
		err = h.FilterReplace(&netlink.BpfFilter{
			FilterAttrs:  netlink.FilterAttrs{LinkIndex: index, Parent: p.parent, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
			Fd:           prog.FD(),
			Name:         p.name,
			DirectAction: true,
		})
		prog.Close() // the filter holds it now
		if err != nil {
			return fmt.Errorf("%s: attach %s to %s: %w", h.name, p.name, name, err)
		}
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
