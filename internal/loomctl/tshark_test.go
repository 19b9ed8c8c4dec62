//go:build tshark

package loomctl

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Wireshark reads what capture writes, with the fabric's dissector. The package is large,
// so that only `make test-tshark` runs this.
func TestWiresharkReadsCaptures(t *testing.T) {
	program := "tshark" // no test of make test starts it
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if _, _, _, err := runCapture(t, false, "-w", file); err != nil {
		t.Fatal(err)
	}
	args := []string{"-r", file, "-X", "lua_script:../../deploy/wireshark/loom.lua", "-T", "fields", "-E", "separator=|", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction", "-e", "vxlan.vni", "-e", "ip.src", "-e", "udp.dstport", "-e", "frame.comment", "-e", "_ws.malformed"}
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"acc0|0x00000001||10.1.0.1|53|in; worker 0|",
		"up0|0x00000002|100|10.255.0.2,10.1.0.1|4789,53|out; worker 1; here for 1.5µs; uplink 0; class 0; conga; flowlet new; it has had no flowlet yet|",
		"acc0|0x00000000||10.1.0.1|53|dropped: no_route; worker 0|",
	} {
		if lines := strings.Split(string(out), "\n"); i >= len(lines) || lines[i] != want {
			t.Errorf("frame %d: want %s in\n%s", i, want, out)
		}
	}
}
