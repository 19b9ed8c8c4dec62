package frr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

func readAll(resp *http.Response) ([]byte, error) {
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}

// A probe is many UDP flows whose datagrams are answered, at a steady rate. Each is
// numbered, so that the fate of each is known.
type probe struct {
	t     *testing.T
	each  time.Duration // between two datagrams of a flow
	flows []*flow
	stop  chan struct{}
	wg    sync.WaitGroup
	close []io.Closer
}

// flow is one of a probe.
type flow struct {
	mu   sync.Mutex
	sent []time.Time
	seen []uint8 // answers, by number
}

// startProbe sends a small datagram of each flow every so often, and has the other end
// answer. source is the address to send from, if the kernel is not to choose it.
func startProbe(t *testing.T, from, to *testenv.Namespace, addr netip.Addr, flows int, each time.Duration, source ...netip.Addr) *probe {
	t.Helper()
	p := &probe{t: t, each: each, stop: make(chan struct{})}
	var echo net.PacketConn
	to.Do(t, func() {
		var err error
		if echo, err = net.ListenPacket("udp4", netip.AddrPortFrom(addr, 0).String()); err != nil {
			t.Fatal(err)
		}
	})
	p.close = append(p.close, echo)
	go func() {
		for b := make([]byte, 2048); ; {
			n, from, err := echo.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = echo.WriteTo(b[:n], from) // unreachable now: the probe counts it
		}
	}()
	d := net.Dialer{}
	for _, s := range source {
		d.LocalAddr = &net.UDPAddr{IP: s.AsSlice()}
	}
	for i := range flows {
		var c net.Conn
		from.Do(t, func() {
			var err error
			if c, err = d.Dial("udp4", echo.LocalAddr().String()); err != nil {
				t.Fatal(err)
			}
		})
		p.close = append(p.close, c)
		f := &flow{}
		p.flows = append(p.flows, f)
		go f.receive(c)
		p.wg.Add(1)
		go f.send(c, p, each*time.Duration(i)/time.Duration(flows))
	}
	t.Cleanup(p.end)
	return p
}

func (f *flow) receive(c net.Conn) {
	b := make([]byte, 2048)
	for {
		n, err := c.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 8 {
			continue // an ICMP error about an earlier one
		}
		f.mu.Lock()
		if i := binary.BigEndian.Uint64(b); i < uint64(len(f.seen)) {
			f.seen[i]++
		}
		f.mu.Unlock()
	}
}

func (f *flow) send(c net.Conn, p *probe, after time.Duration) {
	defer p.wg.Done()
	b := make([]byte, 100)
	time.Sleep(after)
	tick := time.NewTicker(p.each)
	defer tick.Stop()
	for i := uint64(0); ; i++ {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		f.mu.Lock()
		f.sent, f.seen = append(f.sent, time.Now()), append(f.seen, 0)
		f.mu.Unlock()
		binary.BigEndian.PutUint64(b, i)
		_, _ = c.Write(b) // an error is about an earlier one; this one counts as lost then
	}
}

// end stops sending and gives the last answers time to come.
func (p *probe) end() {
	select {
	case <-p.stop:
		return
	default:
	}
	close(p.stop)
	p.wg.Wait()
	time.Sleep(200 * time.Millisecond)
	for _, c := range p.close {
		c.Close()
	}
}

// loss is what became of the datagrams of some time.
type loss struct {
	sent, lost, duplicates int
	flows                  int           // that lost some
	outage                 time.Duration // the longest time in which a flow had no answer
}

func (l loss) String() string {
	return fmt.Sprintf("%v (%d of %d datagrams of %d flows, %d duplicates)", l.outage.Round(time.Millisecond), l.lost, l.sent, l.flows, l.duplicates)
}

// loss sums up what was sent in [from, to).
func (p *probe) loss(from, to time.Time) (out loss) {
	for _, f := range p.flows {
		f.mu.Lock()
		lost, run := 0, 0
		for i, at := range f.sent {
			if at.Before(from) || !at.Before(to) {
				continue
			}
			out.sent++
			if f.seen[i] > 0 {
				out.duplicates += int(f.seen[i]) - 1
				run = 0
				continue
			}
			lost++
			run++
			out.outage = max(out.outage, time.Duration(run)*p.each)
		}
		f.mu.Unlock()
		out.lost += lost
		if lost > 0 {
			out.flows++
		}
	}
	return out
}

// works waits until all flows have had answers for a while, from now on.
func (p *probe) works(within time.Duration) {
	p.t.Helper()
	start := time.Now()
	eventually(p.t, within, func() string {
		to := time.Now().Add(-200 * time.Millisecond)
		from := to.Add(-300 * time.Millisecond)
		if l := p.loss(from, to); from.Before(start) || l.sent < len(p.flows) || l.lost > 0 {
			return "lost: " + l.String()
		}
		return ""
	})
}
