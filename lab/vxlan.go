package lab

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
)

// reservedBits is what a VXLAN device drops, of the first eight bytes of the header, so
// that it takes Loom's header without a shim for a plain one: RFC 7348's flags, and
// the fields that other packets than DATA have (docs/wire-format.md).
const reservedBits = 0xf70003fc00000000

const iflaVXLANReservedBits = 33 // linux/if_link.h, since Linux 6.14; package nl lacks it

// addVXLAN makes a vxlan device in the calling thread's namespace, and fills in its
// index. Its kernel reads Loom's header if reserved is set.
func addVXLAN(v *netlink.Vxlan, reserved bool) error {
	local := nl.NewRtAttr(nl.IFLA_VXLAN_LOCAL, v.SrcAddr.To4())
	if six := v.SrcAddr.To4() == nil; six {
		// As leafd has it: no UDP checksums (RFC 6935).
		v.UDP6ZeroCSumTx, v.UDP6ZeroCSumRx = true, true
		local = nl.NewRtAttr(nl.IFLA_VXLAN_LOCAL6, v.SrcAddr)
	}
	if !reserved {
		return netlink.LinkAdd(v)
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(v.Name)))
	req.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(v.MTU))))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vxlan"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_VXLAN_ID, nl.Uint32Attr(uint32(v.VxlanId)))
	data.AddChild(local)
	data.AddRtAttr(nl.IFLA_VXLAN_UDP_ZERO_CSUM6_TX, boolean(v.UDP6ZeroCSumTx))
	data.AddRtAttr(nl.IFLA_VXLAN_UDP_ZERO_CSUM6_RX, boolean(v.UDP6ZeroCSumRx))
	data.AddRtAttr(nl.IFLA_VXLAN_TTL, nl.Uint8Attr(uint8(v.TTL)))
	data.AddRtAttr(nl.IFLA_VXLAN_LEARNING, boolean(v.Learning))
	data.AddRtAttr(nl.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, fabric.VXLANPort))
	data.AddRtAttr(iflaVXLANReservedBits, binary.BigEndian.AppendUint64(nil, reservedBits))
	req.AddData(info)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("reserved_bits %#x: %w (Linux knows them from 6.14 on)", uint64(reservedBits), err)
	}
	link, err := netlink.LinkByName(v.Name)
	if err != nil {
		return err
	}
	v.Index = link.Attrs().Index
	return nil
}

// boolean is an attribute of one byte.
func boolean(b bool) []byte {
	if b {
		return nl.Uint8Attr(1)
	}
	return nl.Uint8Attr(0)
}
