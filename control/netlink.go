package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/internal/rtnl"
)

// watchBuffer is the receive buffer of the event socket: some ten thousand
// events, more than come while one list is read.
const watchBuffer = 8 << 20

// maxDumps bounds how often a list is read that the kernel says it changed
// while it was being read (NLM_F_DUMP_INTR).
const maxDumps = 3

// Netlink is the [Kernel] of this machine, in the network namespace of the
// thread that made it. List and Resolve may be called by one goroutine at a
// time.
type Netlink struct {
	h      *netlink.Handle
	dumps  *rtnl.Socket // for what package netlink does not read
	events *rtnl.Socket
	ports  names      // whose carriers are polled
	vtep   netip.Addr // whose interface says which VRF the underlay is

	known    []Link                         // as they were listed last
	watching atomic.Pointer[map[int32]bool] // ports by index; nil: not known yet

	ethtool *ethtool.Socket
}

// OpenNetlink opens the sockets. The watch begins here, so that nothing is
// missed between the first list and Watch. The carriers of ports are watched
// more closely than the kernel's events allow.
func OpenNetlink(ports ...string) (*Netlink, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	tool, err := ethtool.Open()
	if err != nil {
		h.Close()
		return nil, err
	}
	k := &Netlink{h: h, ethtool: tool}
	k.SetPorts(ports...)
	if err := k.open(); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func (k *Netlink) open() (err error) {
	k.events, err = rtnl.Open(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return err
	}
	// Without CAP_NET_ADMIN the system's limit holds for the buffer. Lost events are noticed
	// and made up for, so a smaller one only costs time.
	if err := errors.Join(k.events.SetFilter(ignoreBridges()), k.events.SetBuffer(watchBuffer)); err != nil {
		return err
	}
	if k.dumps, err = rtnl.Open(unix.NETLINK_ROUTE); err != nil {
		return err
	}
	return k.dumps.SetStrict()
}

// Underlay names the VTEP. Its interface says in which VRF the underlay's routes are: in
// that of its l3mdev master, or in the main table. Without one, or while no interface has
// the address, the ports' master says so. It must be called before Watch and List.
func (k *Netlink) Underlay(vtep netip.Addr) { k.vtep = vtep }

// Close closes the sockets. A watch must have been stopped.
func (k *Netlink) Close() {
	for _, s := range []*rtnl.Socket{k.events, k.dumps} {
		if s != nil {
			_ = s.Close() // a watch may have closed it
		}
	}
	_ = k.ethtool.Close() // it holds nothing that could be lost
	k.h.Close()
}

// Watch calls changed until stop is called, from two goroutines.
func (k *Netlink) Watch(changed func(Kind), failing func(error)) (stop func(), err error) {
	end := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() { pollCarriers(k.ethtool, k.ports.get, end, func() { changed(Links) }) })
	both.Go(func() {
		follow(func() ([]byte, error) { return k.events.Receive(nil) }, end, k.concerns, changed, failing)
	})
	return func() {
		close(end)
		_ = k.events.Close() // nothing more is wanted of it
		both.Wait()
	}, nil
}

// The pause after an error of the event socket, which doubles with each one that
// follows.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// follow passes on what a socket receives until it is closed. An error means that
// events were lost: all has to be listed. ENOBUFS says so and is over with that. Any
// other may last, and is reported when it does; meanwhile only the pauses and the
// mirror's own rounds tell of changes.
func follow(receive func() ([]byte, error), end <-chan struct{}, concerns func(rtnl.Message) bool, changed func(Kind), failing func(error)) {
	for failures, pause := 0, firstPause; ; {
		b, err := receive()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case err == nil:
			if failures > 1 {
				failing(nil)
			}
			failures, pause = 0, firstPause
			note(b, concerns, changed)
			continue
		}
		for kind := range numKinds {
			changed(kind)
		}
		if errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if failures++; failures == 2 {
			failing(err)
		}
		select {
		case <-end:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// kindOf says what a message is about.
var kindOf = map[uint16]Kind{
	unix.RTM_NEWLINK: Links, unix.RTM_DELLINK: Links,
	unix.RTM_NEWROUTE: Routes, unix.RTM_DELROUTE: Routes, unix.RTM_NEWNEXTHOP: Routes, unix.RTM_DELNEXTHOP: Routes,
	unix.RTM_NEWNEIGH: Neighbours, unix.RTM_DELNEIGH: Neighbours,
	unix.RTM_NEWADDR: Addresses, unix.RTM_DELADDR: Addresses,
}

// note names the kinds that messages are about which concern us.
func note(b []byte, concerns func(rtnl.Message) bool, changed func(Kind)) {
	for m := range rtnl.Messages(b) {
		kind, ok := kindOf[m.Kind]
		if !ok || !concerns(m) {
			continue
		}
		changed(kind)
		switch kind {
		case Links:
			// The kernel drops routes, neighbours and addresses of a link that goes
			// away, partly without saying so for each.
			changed(Routes)
			changed(Neighbours)
			changed(Addresses)
		case Addresses:
			changed(Routes) // the VTEP may be in another VRF now
		}
	}
}

// concerns reports whether a message can change the state that is mirrored. Routes count
// if they are of the underlay's family. Neighbours count if they are IP's, and behind a port: a leaf's bridge tells of each host that it
// learns, and its kernel of each that it talks to.
func (k *Netlink) concerns(m rtnl.Message) bool {
	switch m.Kind {
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		n, ok := parseNeighbour(m.Payload)
		watching := k.watching.Load()
		return ok && (watching == nil || (*watching)[int32(n.Ifindex)])
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(m.Payload) == 0 || m.Payload[0] != unix.AF_BRIDGE
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(m.Payload) == 0 || slices.Contains(k.families(), m.Payload[0])
	}
	return true
}

// ignoreBridges is a filter of events. It leaves out what a bridge tells of its ports and
// of the addresses that it learns: a hundred thousand of them would push out the events
// that count. The family of such messages, the first byte behind the header, is AF_BRIDGE.
func ignoreBridges() []unix.SockFilter {
	typeIs := func(t uint16, skip uint8) unix.SockFilter {
		// A filter loads numbers in network order, and a header is in the host's.
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: skip, K: uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, t)))}
	}
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4}, // nlmsg_type
		typeIs(unix.RTM_NEWNEIGH, 4),
		typeIs(unix.RTM_DELNEIGH, 3),
		typeIs(unix.RTM_NEWLINK, 2),
		typeIs(unix.RTM_DELLINK, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32},
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: unix.SizeofNlMsghdr},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.AF_BRIDGE},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32},
	}
}
