package admin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// flowParameters are those of /v1/explain.
var flowParameters = []string{"vni", "src", "dst", "dst_mac", "proto", "sport", "dport", "dscp"}

// A flow between IP addresses is a ping if nothing else is said.
const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// parseFlow reads the flow that /v1/explain is asked about: src and dst are two
// IP or two MAC addresses.
func parseFlow(q url.Values, t *dataplane.Tables) (*dataplane.Flow, error) {
	f, errs := parseAddresses(q)
	number := func(name string, top uint64) uint64 {
		n, err := parseNumber(q, name, top)
		errs = append(errs, err)
		return n
	}
	f.VNI = overlay.VNI(number("vni", 1<<24-1))
	f.SrcPort, f.DstPort = uint16(number("sport", 65535)), uint16(number("dport", 65535))
	var err error
	if text := q.Get("dscp"); text != "" {
		var ok bool
		if f.DSCP, ok = overlay.ParseDSCP(text); !ok {
			errs = append(errs, fmt.Errorf("dscp %q: use 0 to %d, or a name as ef or af41", text, overlay.MaxDSCP))
		}
	}
	if text := q.Get("dst_mac"); text != "" {
		if f.DstMAC, err = parseMAC("dst_mac", text); err == nil && !f.Dst.IsValid() {
			err = errors.New("dst_mac goes with IP addresses: dst is a MAC address already")
		}
		errs = append(errs, err)
	}
	f.Proto, err = parseProto(q.Get("proto"), f)
	errs = append(errs, err)
	if (f.SrcPort != 0 || f.DstPort != 0) && f.Proto != overlay.ProtoTCP && f.Proto != overlay.ProtoUDP && f.Proto != overlay.ProtoSCTP {
		errs = append(errs, errors.New("ports belong to tcp, udp or sctp: give proto"))
	}
	if err = errors.Join(errs...); err == nil && f.VNI == 0 {
		f.VNI, err = onlyVNI(t)
	}
	return f, err
}

// parseAddresses reads the two ends of a flow.
func parseAddresses(q url.Values) (f *dataplane.Flow, errs []error) {
	f = &dataplane.Flow{}
	var err error
	f.Src, f.SrcMAC, err = parseEnd("src", q.Get("src"))
	if err != nil {
		errs = append(errs, err)
	}
	f.Dst, f.DstMAC, err = parseEnd("dst", q.Get("dst"))
	if err != nil {
		errs = append(errs, err)
	}
	return f, errs
}

func parseEnd(name, text string) (netip.Addr, overlay.MAC, error) {
	if text == "" {
		return netip.Addr{}, overlay.MAC{}, fmt.Errorf("%s is needed: an IP or a MAC address", name)
	}
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return netip.Addr{}, overlay.MAC{}, fmt.Errorf("%s %s: leave out the zone, packets do not carry it", name, text)
		}
		return a.Unmap(), overlay.MAC{}, nil
	}
	m, err := parseMAC(name, text)
	return netip.Addr{}, m, err
}

func parseMAC(name, text string) (overlay.MAC, error) {
	m, err := net.ParseMAC(text)
	if err != nil || len(m) != 6 {
		return overlay.MAC{}, fmt.Errorf("%s %q is neither an IP nor a MAC address", name, text)
	}
	return overlay.MAC(m), nil
}

// parseProto returns the protocol of f. For IP without one it is ICMP, as in a ping.
func parseProto(text string, f *dataplane.Flow) (uint8, error) {
	if text == "" {
		switch {
		case f.Src.Is4():
			return protoICMP, nil
		case f.Src.Is6():
			return protoICMPv6, nil
		}
		return 0, nil
	}
	p, ok := overlay.ParseProtocol(text)
	if !ok {
		return 0, fmt.Errorf("proto %q: use tcp, udp, sctp, icmp, icmpv6 or a number, 1 to 255", text)
	}
	return p, nil
}

// onlyVNI returns the VNI that is meant when none is given.
func onlyVNI(t *dataplane.Tables) (overlay.VNI, error) {
	var names []string
	var last overlay.VNI
	for _, v := range t.VNIs {
		if v.VNI != 0 { // 0: its place is free
			names, last = append(names, strconv.Itoa(int(v.VNI))), v.VNI
		}
	}
	if len(names) != 1 {
		return 0, fmt.Errorf("vni is needed: this leaf has %s", strings.Join(names, ", "))
	}
	return last, nil
}
