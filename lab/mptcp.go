package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// joinPort is the first of the ports at which a host takes further subflows.
const joinPort = 6001

// The kernel's generic netlink family "mptcp_pm" (linux/mptcp_pm.h).
const (
	mptcpFamily    = "mptcp_pm"
	mptcpVersion   = 1
	mptcpAddAddr   = 1 // MPTCP_PM_CMD_ADD_ADDR
	mptcpSetLimits = 5 // MPTCP_PM_CMD_SET_LIMITS

	mptcpAddr        = 1 // MPTCP_PM_ATTR_ADDR
	mptcpRcvAddAddrs = 2 // MPTCP_PM_ATTR_RCV_ADD_ADDRS
	mptcpSubflows    = 3 // MPTCP_PM_ATTR_SUBFLOWS

	mptcpAddrFamily = 1      // MPTCP_PM_ADDR_ATTR_FAMILY
	mptcpAddr4      = 3      // MPTCP_PM_ADDR_ATTR_ADDR4
	mptcpAddrPort   = 5      // MPTCP_PM_ADDR_ATTR_PORT
	mptcpAddrFlags  = 6      // MPTCP_PM_ADDR_ATTR_FLAGS
	mptcpSignal     = 1 << 0 // MPTCP_PM_ADDR_FLAG_SIGNAL
)

// takeSubflows has a host of the calling thread's namespace take part in connections of
// MPTCP with so many subflows. The kernel's path manager makes subflows between pairs of
// addresses, and hosts have one each: so they announce it again, each time with another port, and
// their peers join there. Whoever opened the connection, both do, until both have as many as
// are allowed.
func takeSubflows(at netip.Addr, subflows int) error {
	family, err := netlink.GenlFamilyGet(mptcpFamily)
	if errors.Is(err, unix.ENOENT) {
		return errors.New("subflows: this kernel has no MPTCP (CONFIG_MPTCP)")
	}
	if err != nil {
		return fmt.Errorf("subflows: ask the kernel for its MPTCP: %w", err)
	}
	do := func(cmd uint8, what string, attrs ...*nl.RtAttr) error {
		req := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
		req.AddRawData([]byte{cmd, mptcpVersion, 0, 0})
		for _, a := range attrs {
			req.AddRawData(a.Serialize())
		}
		if _, err := req.Execute(unix.NETLINK_GENERIC, 0); err != nil {
			return fmt.Errorf("subflows: %s: %w", what, err)
		}
		return nil
	}
	more := uint32(subflows - 1)
	errs := []error{do(mptcpSetLimits, fmt.Sprintf("allow %d further ones", more),
		nl.NewRtAttr(mptcpRcvAddAddrs, nl.Uint32Attr(more)), nl.NewRtAttr(mptcpSubflows, nl.Uint32Attr(more)))}
	for i := range uint16(more) {
		a := nl.NewRtAttr(mptcpAddr|int(nl.NLA_F_NESTED), nil)
		a.AddRtAttr(mptcpAddrFamily, nl.Uint16Attr(unix.AF_INET))
		a.AddRtAttr(mptcpAddr4, at.AsSlice())
		a.AddRtAttr(mptcpAddrPort, nl.Uint16Attr(joinPort+i))
		a.AddRtAttr(mptcpAddrFlags, nl.Uint32Attr(mptcpSignal))
		errs = append(errs, do(mptcpAddAddr, fmt.Sprintf("announce %v port %d", at, joinPort+i), a))
	}
	return errors.Join(errs...)
}
