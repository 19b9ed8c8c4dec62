package rdma

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/loomfabric/loom/overlay"
)

var macA, macB = overlay.MAC{2, 0, 0, 0, 0, 1}, overlay.MAC{2, 0, 0, 0, 0, 2}

// udpFrame makes a frame of UDP over IPv4 with a payload.
func udpFrame(from overlay.MAC, port uint16, payload string) []byte {
	b := make([]byte, overlay.EthernetLen+overlay.IPv4Len+overlay.UDPLen)
	copy(b[6:], from[:])
	b[12], b[13], b[14], b[23] = 8, 0, 0x45, overlay.ProtoUDP
	binary.BigEndian.PutUint16(b[36:], port)
	return append(b, payload...)
}

// writeCapture writes frames, of which missing bytes were not captured.
func writeCapture(t *testing.T, missing int, frames ...[]byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pcap")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for _, b := range frames {
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(b), Length: len(b) + missing}, b); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func TestRoCE(t *testing.T) {
	want := [][]byte{udpFrame(macA, rocePort, "one"), udpFrame(macA, rocePort, "two")}
	arp := udpFrame(macA, rocePort, "not IP")
	arp[12], arp[13] = 8, 6
	tcp := udpFrame(macA, rocePort, "not UDP")
	tcp[23] = 6
	file := writeCapture(t, 0, want[0], udpFrame(macB, rocePort, "from B"), udpFrame(macA, 53, "DNS"), arp, tcp, want[0][:30], want[1])
	for cut, n := range map[int64]int{0: 2, 1: 1, int64(len(want[1])) + 15: 1} {
		st, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		part := filepath.Join(t.TempDir(), "part")
		if err := os.WriteFile(part, whole[:st.Size()-cut], 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := RoCE(part, macA)
		if err != nil || len(got) != n || Altered(want, got) != 0 {
			t.Errorf("without its last %d bytes: %q, %v", cut, got, err)
		}
	}
	for _, bad := range [][]byte{nil, []byte("short"), make([]byte, 100)} {
		name := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(name, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := RoCE(name, macA); err == nil {
			t.Errorf("% x was read as a capture", bad)
		}
	}
	short := writeCapture(t, 9000, want[0]) // the frame was longer
	if _, err := RoCE(short, macA); err == nil {
		t.Error("a part of a frame was taken for the whole")
	}
}

func TestAltered(t *testing.T) {
	f := func(s ...string) (out [][]byte) {
		for _, x := range s {
			out = append(out, []byte(x))
		}
		return out
	}
	for _, tc := range []struct {
		sent, arrived [][]byte
		want          int
	}{
		{f("a", "b", "b", "c"), f("b", "c", "a", "b"), 0}, // order does not matter
		{f("a", "b"), f("b"), 0},                          // nor loss
		{f("a", "b"), f("a", "B"), 1},
		{f("a", "b"), f("a", "a"), 1}, // one was sent
		{nil, f("x"), 1},
	} {
		if got := Altered(tc.sent, tc.arrived); got != tc.want {
			t.Errorf("of %q sent %q: %d altered, want %d", tc.sent, tc.arrived, got, tc.want)
		}
	}
}
