package netns

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/internal/units"
)

// slowUplinks shapes L0's uplinks.
func slowUplinks(f *fab, rate units.Rate, queue units.Size, ecn vocab.ECN) {
	f.reconfigure("L0", func(c *config.Leaf) {
		for i := range c.Uplinks {
			e := &c.Uplinks[i].Egress
			e.Shaper, e.Queue, e.ECN = config.Shaper{Rate: rate}, queue, ecn
		}
	})
}

// TestQueueFull: more than a shaped link carries is dropped under queue_full,
// what it carries arrives at its rate, and the account balances all the while.
func TestQueueFull(t *testing.T) {
	f := up(t, "trio.yaml") // one uplink a leaf
	const rate, queue = 8_000_000, 32 << 10
	slowUplinks(f, rate, queue, vocab.ECN{})
	transfer(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 16<<10)
	d := f.daemons["L0"]
	before := d.drops("queue_full")

	in := f.udp("h2")
	out := f.sendUDP("h0", in.LocalAddr().String())
	received := make(chan int, 1)
	go func() {
		total, buf := 0, make([]byte, 2048)
		for {
			n, _, err := in.ReadFrom(buf)
			if err != nil {
				received <- total
				return
			}
			total += n
		}
	}()
	payload := make([]byte, 1400)
	start := time.Now()
	sent := 0
	for time.Since(start) < 2*time.Second { // some 40 Mbit/s into 8
		for range 7 {
			if _, err := out.Write(payload); err != nil {
				t.Fatal(err)
			}
			sent += len(payload)
		}
		time.Sleep(2 * time.Millisecond)
		if sent%(70*len(payload)) == 0 {
			d.balanced() // under load
		}
	}
	took := time.Since(start)
	full := d.drops("queue_full") - before
	if full < 100 {
		t.Errorf("%d bytes were sent into a link of %d bit/s in %v, and %d frames dropped under queue_full", sent, rate, took, full)
	}
	depth := func(part string) uint64 { return d.metric("loom_port_queue_depth_bytes_"+part, `port="up-s0-0"`) }
	if mean := depth("sum") / max(depth("count"), 1); mean > queue || mean < queue/4 {
		t.Errorf("the queue held %d bytes in the mean, its limit is %d", mean, queue)
	}
	time.Sleep(200 * time.Millisecond)
	in.Close()
	got := float64(<-received) * 8 / took.Seconds()
	if got > 1.2*rate || got < 0.3*rate {
		t.Errorf("%.1f Mbit/s came through a link of %.1f", got/1e6, rate/1e6)
	}
	for name, d := range f.daemons {
		d.balanced()
		if held := d.metric("loom_worker_held_frames"); held > 5 {
			t.Errorf("%s holds %d frames when all is over", name, held)
		}
	}
	transfer(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 64<<10)
}

// udp listens in a host until the test ends.
func (f *fab) udp(host string) net.PacketConn {
	f.t.Helper()
	return listenUDP(f.t, f.ns[host], f.addr(host))
}

func (f *fab) sendUDP(host, to string) (c net.Conn) {
	f.t.Helper()
	f.ns[host].Do(f.t, func() {
		var err error
		if c, err = net.Dial("udp", to); err != nil {
			f.t.Fatal(err)
		}
	})
	f.t.Cleanup(func() { c.Close() })
	return c
}

// netstat reads a counter of a namespace's /proc/net/netstat.
func netstat(t *testing.T, ns *testenv.Namespace, table, name string) (value uint64) {
	t.Helper()
	var text []byte
	ns.Do(t, func() {
		var err error
		// /proc/net is the main thread's.
		if text, err = os.ReadFile("/proc/thread-self/net/netstat"); err != nil {
			t.Fatal(err)
		}
	})
	var rows [][]string // names, and below them values
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == table+":" {
			rows = append(rows, f)
		}
	}
	if len(rows) != 2 || len(rows[0]) != len(rows[1]) {
		t.Fatalf("netstat has %d rows of %s", len(rows), table)
	}
	names, values := rows[0], rows[1]
	for i, n := range names {
		if n == name {
			if _, err := fmt.Sscan(values[i], &value); err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("netstat has no %s in %s", name, table)
	return 0
}

// TestECN: a queue above its thresholds marks ECN-capable packets, the mark
// survives decapsulation, and TCP answers it instead of losing packets.
func TestECN(t *testing.T) {
	f := up(t, "trio.yaml")
	for _, h := range []string{"h0", "h2"} {
		f.ns[h].Sysctl(t, "net/ipv4/tcp_ecn", "1")
	}
	slowUplinks(f, 20_000_000, 512<<10, vocab.ECN{Kmin: 20 << 10, Kmax: 60 << 10, Pmax: 0.5})
	d := f.daemons["L0"]
	marked := func() uint64 { return d.metric("loom_port_marked_frames_total", `port="up-s0-0"`) }
	ce := func() uint64 { return netstat(t, f.ns["h2"], "IpExt", "InCEPkts") }
	before := ce()
	transfer(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 2<<20)
	if marked() == 0 || ce() == before {
		t.Errorf("%d frames were marked and %d arrived at h2 with the mark, want some", marked(), ce()-before)
	}
	if n := netstat(t, f.ns["h0"], "TcpExt", "TCPDeliveredCE"); n == 0 {
		t.Error("h0's TCP got no sign of congestion")
	}
	if n := d.drops("queue_full"); n > 0 {
		t.Errorf("%d frames were dropped although TCP got signs of congestion", n)
	}

	// A connection that does not do ECN is not marked.
	f.ns["h0"].Sysctl(t, "net/ipv4/tcp_ecn", "0")
	f.ns["h2"].Sysctl(t, "net/ipv4/tcp_ecn", "0")
	was := marked()
	transfer(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 1<<20)
	if n := marked() - was; n > 0 {
		t.Errorf("%d frames were marked of a connection without ECN", n)
	}
}
