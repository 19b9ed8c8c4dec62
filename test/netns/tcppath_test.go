package netns

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

// connect opens a connection from a port, 0 for any, sends a little there and back, and keeps it.
func connect(t *testing.T, from, to *testenv.Namespace, addr netip.Addr, port int) net.Conn {
	t.Helper()
	l := listen(t, to, netip.AddrPortFrom(addr, 0))
	defer l.Close()
	served := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		served <- c
	}()
	var c net.Conn
	from.Do(t, func() {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{Port: port}}
		var err error
		if c, err = d.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
	})
	far := <-served
	if far == nil {
		t.Fatal("nobody accepted")
	}
	t.Cleanup(func() { c.Close(); far.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := far.Read(b)
			if err != nil {
				return
			}
			if _, err := far.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	ping(t, c)
	return c
}

// ping sends something by a connection, and waits for the echo.
func ping(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := []byte("hello")
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < len(b); {
		n, err := c.Read(b[got:])
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
}

// TestTCPPath: real connections explore, by the ports that a class has; copies of their
// SYNs are dropped; and when a link fails they look for another path and go on.
func TestTCPPath(t *testing.T) {
	f := up(t, "tcp-path/pair.yaml")
	near, far := f.daemons["L0"], f.daemons["L1"]
	open := func(port int) net.Conn { return connect(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), port) }
	counts := func() [4]uint64 {
		return [4]uint64{
			near.metric("loom_tcp_path_explorations_total"), near.metric("loom_tcp_path_receiver_replies_total"),
			far.metric("loom_tcp_path_receiver_requests_frames_total"), far.drops("copy"),
		}
	}
	port := 62000
	eventually(t, 10*time.Second, func() string { // until the leaves know of each other
		before := counts()
		open(port)
		port++
		if after := counts(); after[1] != before[1]+1 {
			return fmt.Sprintf("a connection more, and instead of %v there are %v", before, after)
		}
		return ""
	})
	before := counts()
	const n = 8
	conns := []net.Conn{open(0)} // which does not explore
	for i := range n {
		conns = append(conns, open(61000+i))
	}
	eventually(t, 5*time.Second, func() string {
		after := counts()
		for i := range after {
			if after[i] != before[i]+n {
				return fmt.Sprintf("of %d connections explorations, replies, requests that came first and copies are %v, and were %v", n, after, before)
			}
		}
		return ""
	})
	for _, link := range []string{"L0-S0.0", "L0-S1.0"} { // some connections are on each
		if err := f.lab.Fail(link); err != nil {
			t.Fatal(err)
		}
		for _, c := range conns {
			ping(t, c)
		}
		if err := f.lab.Restore(link); err != nil {
			t.Fatal(err)
		}
	}
	if got := near.metric("loom_tcp_path_recoveries_total"); got < n/2 {
		t.Errorf("%d recoveries, of %d connections by two links that failed in turn", got, n)
	}
	if got := near.metric("loom_tcp_path_path_fails_sent_total") + far.metric("loom_tcp_path_path_fails_sent_total"); got == 0 {
		t.Error("no PathFail was sent")
	}
}
