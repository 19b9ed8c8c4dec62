//go:build uml

package bridge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestUMLMessages has the kernel say all about VLANs that the parsers read. What it says
// can be kept for the tests of machines that have no such kernel: `make test-uml` with
// UMLFLAGS=-record does that.
func TestUMLMessages(t *testing.T) {
	list := recordMessages(t, slices.Concat([]string{
		"ip link add br0 address 02:00:00:00:00:aa type bridge vlan_filtering 1 vlan_default_pvid 0",
		"ip link add acc address 02:00:00:00:00:ab type veth peer name hacc", "ip link add sub.30 link acc type vlan id 30", "ip link set acc up", "ip link set hacc up", "ip link set acc master br0",
		"bridge vlan add dev acc vid 10 pvid untagged", "bridge vlan add dev acc vid 12 untagged", "bridge vlan add dev acc vid 14-17",
		"ip link set br0 up", "bridge vlan add dev br0 vid 10 self", "ip link add link br0 name br0.10 up type vlan id 10",
		"bridge fdb add " + one1 + " dev acc master dynamic vlan 10", "bridge fdb del " + one1 + " dev acc master vlan 10",
		"bridge vlan set dev acc vid 10 state blocking", "bridge vlan set dev acc vid 16-17 state learning", "bridge vlan set dev acc vid 10 state forwarding",
		"bridge vlan del dev acc vid 15",
	}, singleDevice, []string{
		"bridge fdb replace " + far3 + " dev vxd dst 10.0.0.2 src_vni 10010 self extern_learn", "bridge fdb replace " + far3 + " dev vxd master extern_learn vlan 10",
		"bridge fdb append 00:00:00:00:00:00 dev vxd dst 10.0.0.2 src_vni 10010 self permanent",
		"bridge fdb del " + far3 + " dev vxd src_vni 10010 self",
		"bridge vni delete vni 10021 dev vxd", "bridge vlan del dev vxd vid 21 tunnel_info id 10021", "bridge vlan del dev vxd vid 10",
		"ip link add red up type vrf table 1001", "ip link add bond0 type bond", "ip link set bond0 master br0", "ip link set vxd nomaster",
	})...)
	var all strings.Builder
	for _, r := range list {
		fmt.Fprintln(&all, meaning(r.kind, r.payload))
	}
	for _, want := range []string{
		"{First:14 Last:17 PVID:false Untagged:false}", "{First:10 Last:10 PVID:true Untagged:true}", "{First:12 Last:12 PVID:false Untagged:true}",
		"tunnels [{First:10 Last:10 VNI:10010} {First:20 Last:22 VNI:10020}]", "VNIs [{10022 10022}]", "SrcVNI:10010", "VLAN:10 ",
		`kind "vlan"`, "vlan 30 protocol 0x8100", "Filtering:true", "VNIFilter:true", "Tunnel:true", `kind "bond"`,
		"blocked [{First:10 Last:10 State:4}]", "blocked [{First:16 Last:17 State:2}]",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("nothing that the kernel has said is %q:\n%s", want, &all)
		}
	}
	if dir := os.Getenv("LOOM_RECORD"); dir != "" {
		writeRecorded(t, filepath.Join(dir, filepath.Base(vlanFile)), list)
	}
}
