package netns

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/internal/record"
	"github.com/loomfabric/loom/overlay"
)

// captured is a frame of a pcapng file.
type captured struct {
	port, comment string
	outer         netip.Addr // source of the tunnel
	from          netip.Addr // tenant's source
	payload       int        // of TCP
	sport, dport  uint16
}

// startCapture captures at a daemon for a time, and returns what ends it.
func (d *daemon) startCapture(length time.Duration, args ...string) (end func() []captured) {
	d.t.Helper()
	file := filepath.Join(d.t.TempDir(), d.name+".pcapng")
	var done sync.WaitGroup
	done.Go(func() {
		d.loomctl(append([]string{"capture", "-w", file, "--time", length.String()}, args...)...)
	})
	eventually(d.t, 10*time.Second, func() string {
		if st, err := os.Stat(file); err != nil || st.Size() == 0 {
			return "the capture has not begun"
		}
		return ""
	})
	return func() []captured {
		done.Wait()
		return readCapture(d.t, file)
	}
}

func readCapture(t *testing.T, file string) (all []captured) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		port, err := r.Interface(ci.InterfaceIndex)
		if err != nil || len(opts.Comments) != 1 {
			t.Fatalf("%v, comments %q", err, opts.Comments)
		}
		c := captured{port: port.Name, comment: opts.Comments[0]}
		for _, l := range gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default).Layers() {
			switch x := l.(type) {
			case *layers.IPv4:
				c.outer, c.from = c.from, netip.AddrFrom4([4]byte(x.SrcIP.To4()))
			case *layers.TCP:
				c.sport, c.dport, c.payload = uint16(x.SrcPort), uint16(x.DstPort), len(x.Payload)
			}
		}
		all = append(all, c)
	}
}

// TestCapture: TCP crosses a fabric whose leaf and spines capture. An independent codec
// reads the files; what their comments say of uplinks is where the frames went, and what
// explain says.
func TestCapture(t *testing.T) {
	f := up(t, "pair.yaml")
	f.reconfigure("L0", func(c *config.Leaf) { c.Scheme = "conga" })
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 4<<10)
	l0 := f.daemons["L0"]
	h0, h3 := f.addr("h0"), f.addr("h3")
	both := fmt.Sprintf("%v,%v,tcp", h0, h3)
	const length = 3 * time.Second
	ends := map[string]func() []captured{
		"L0": l0.startCapture(length, "--flow", both),
		"S0": f.daemons["S0"].startCapture(length, "--flow", both), "S1": f.daemons["S1"].startCapture(length, "--flow", both),
		"decisions": l0.startCapture(length, "--flowlet", "new,kept,moved", "-s", "200", fmt.Sprintf("src host %v and tcp", h0)),
	}
	const size = 256 << 10
	transfer(t, f.ns["h0"], f.ns["h3"], h3, size)
	files := make(map[string][]captured)
	for name, end := range ends {
		files[name] = end()
	}

	in, out, byUplink := 0, 0, map[string]int{}
	var last captured
	for _, c := range files["L0"] {
		switch {
		case c.port == "acc-h0" && c.from == h0:
			in += c.payload
			if !strings.HasPrefix(c.comment, "in; ") || c.outer.IsValid() {
				t.Fatalf("from the host: %+v", c)
			}
		case strings.HasPrefix(c.port, "up-") && c.from == h0:
			out += c.payload
			byUplink[c.port]++
			last = c
			uplink := 0
			if c.port == "up-s1-0" {
				uplink = 1
			}
			if !strings.Contains(c.comment, fmt.Sprintf("uplink %d; class 0; conga; flowlet ", uplink)) || !strings.HasPrefix(c.comment, "out; ") || !c.outer.IsValid() {
				t.Fatalf("into the fabric by %s: %+v", c.port, c)
			}
		}
	}
	if in < size || out != in {
		t.Errorf("%d bytes came from the host and %d left for the fabric, of %d", in, out, size)
	}
	for _, spine := range []string{"S0", "S1"} {
		toL1, fromL0 := 0, 0
		for _, c := range files[spine] {
			if c.from == h0 && strings.HasPrefix(c.comment, "out; ") {
				toL1++
			} else if c.from == h0 {
				fromL0++
			}
		}
		want := byUplink["up-s"+spine[1:]+"-0"]
		if fromL0 != want || toL1 != want {
			t.Errorf("%s captured %d frames from L0 and %d to L1, and L0 sent it %d", spine, fromL0, toL1, want)
		}
	}
	if n := len(files["decisions"]); n == 0 || n >= len(files["L0"])/2 {
		t.Errorf("%d frames start a flowlet, of %d", n, len(files["L0"]))
	}
	for _, c := range files["decisions"] {
		if strings.Contains(c.comment, "underway") || c.from != h0 {
			t.Errorf("a frame that starts no flowlet: %+v", c)
		}
	}
	l0.checkRecord(size)
	explained := l0.loomctl("explain", h0.String(), h3.String(), "tcp", fmt.Sprint(last.sport), fmt.Sprint(last.dport), "--vni", "10", "--dst-mac", overlay.MAC(f.host("h3").MAC).String())
	if !strings.Contains(explained, "("+last.port+"), last packet") {
		t.Errorf("the flow's last frame left by %s; explain says\n%s", last.port, explained)
	}
}

// checkRecord reads a leaf's flight record, which must have a flow of a size, and samples.
func (d *daemon) checkRecord(size int) {
	d.t.Helper()
	file := filepath.Join(d.t.TempDir(), "x.loom")
	d.loomctl("record", "dump", file)
	f, err := os.Open(file)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	r, err := record.Read(f)
	if err != nil {
		d.t.Fatal(err)
	}
	largest := uint64(0)
	for _, x := range r.Flows {
		largest = max(largest, x.Bytes)
	}
	if largest < uint64(size) || len(r.Samples) < 10 || len(r.Events) == 0 || r.Scheme != "conga" {
		d.t.Errorf("the largest of %d flows has %d bytes, %d samples, %d events, %+v", len(r.Flows), largest, len(r.Samples), len(r.Events), r.Header)
	}
}
