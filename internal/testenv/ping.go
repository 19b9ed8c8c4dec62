package testenv

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Ping sends echo requests of a payload size with DF set, one every 50 ms, and reports
// what became of each, and whether all were answered. It needs no program that a
// machine may not have. source is the address to send from, if the kernel is not to
// choose it.
func Ping(t testing.TB, from *Namespace, to netip.Addr, payload, count int, source ...netip.Addr) (report string, ok bool) {
	t.Helper()
	c := listenICMP(t, from, to, source)
	defer c.Close()
	var b strings.Builder
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if to.Is6() {
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	ok = true
	for i := range count {
		id, sent := os.Getpid()&0xffff, time.Now()
		m, err := (&icmp.Message{Type: request, Body: &icmp.Echo{ID: id, Seq: i, Data: make([]byte, payload)}}).Marshal(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.WriteTo(m, &net.IPAddr{IP: to.AsSlice()})
		if err == nil {
			err = answered(c, to, reply, id, i, payload)
		}
		ok = ok && err == nil
		fmt.Fprintf(&b, "%d bytes to %v, %d of %d: %v after %v\n", payload, to, i+1, count, err, time.Since(sent).Round(time.Microsecond))
		time.Sleep(50 * time.Millisecond)
	}
	return b.String(), ok
}

// listenICMP opens a raw socket in a namespace that does not let the kernel fragment.
func listenICMP(t testing.TB, ns *Namespace, to netip.Addr, source []netip.Addr) *net.IPConn {
	t.Helper()
	network, level, option := "ip4:icmp", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if to.Is6() {
		network, level, option = "ip6:ipv6-icmp", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	addr := &net.IPAddr{}
	for _, s := range source {
		addr.IP = s.AsSlice()
	}
	var c *net.IPConn
	var err error
	ns.Do(t, func() { c, err = net.ListenIP(network, addr) })
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, unix.IP_PMTUDISC_DO) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return c
}

// answered waits for the reply to a request.
func answered(c *net.IPConn, to netip.Addr, reply icmp.Type, id, seq, payload int) error {
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	proto := 1
	if to.Is6() {
		proto = 58
	}
	for buf := make([]byte, 1<<16); ; {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil || m.Type != reply {
			continue // a request, or an error about another packet
		}
		if e := m.Body.(*icmp.Echo); from.String() == to.String() && e.ID == id && e.Seq == seq && len(e.Data) == payload {
			return nil
		}
	}
}
