//go:build uml

package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestUMLCheck has `leafd check` look at a leaf with a VLAN-aware bridge, a single VXLAN
// device, a bond, and uplinks in a VRF, of which the file says nothing.
func TestUMLCheck(t *testing.T) {
	testenv.NeedRoot(t)
	leaf, far := testenv.NewNamespace(t, "check-leaf"), testenv.NewNamespace(t, "check-far")
	for _, name := range []string{"up0", "up1", "other", "acc", "trunk", "sub", "m0"} {
		testenv.VethPair(t, leaf, name, far, name, testenv.VethOptions{MTU: map[bool]int{true: 1600, false: 1500}[strings.HasPrefix(name, "up")]})
	}
	commands := []string{
		"ip link add underlay up type vrf table 1001", "ip addr add 10.255.0.1/32 dev underlay", "ip link set up0 master underlay", "ip link set up1 master underlay",
		"ip addr add 10.1.0.0/31 dev up0", "ip addr add 10.1.1.0/31 dev up1", "ip addr add 10.1.9.0/31 dev other",
		"ip route add vrf underlay 10.255.0.2/32 nexthop via 10.1.0.1 dev up0 nexthop via 10.1.1.1 dev up1", "ip route add 10.255.0.2/32 via 10.1.9.1 dev other",
		"ip link add br0 up type bridge vlan_filtering 1 vlan_default_pvid 0",
		"ip link add vxd type vxlan dstport 4789 local 10.255.0.1 external vnifilter nolearning", "ip link set vxd master br0", "bridge link set dev vxd vlan_tunnel on learning off",
		"ip link add sub.30 link sub up type vlan id 30", "ip link add bond0 type bond", "ip link set m0 down", "ip link set m0 master bond0", "ip link set bond0 up",
	}
	for _, vlan := range []int{10, 20} {
		commands = append(commands, fmt.Sprintf("bridge vni add vni %d dev vxd", 10000+vlan), fmt.Sprintf("bridge vlan add dev vxd vid %d", vlan),
			fmt.Sprintf("bridge vlan add dev vxd vid %d tunnel_info id %d", vlan, 10000+vlan))
	}
	for _, member := range []string{"acc vid 10 pvid untagged", "trunk vid 10-20", "sub.30 vid 20 pvid untagged", "bond0 vid 10 pvid untagged"} {
		name, _, _ := strings.Cut(member, " ")
		commands = append(commands, "ip link set "+name+" master br0", "bridge vlan add dev "+member)
	}
	commands = append(commands, "ip link set vxd up", "bridge fdb append 00:00:00:00:00:00 dev vxd dst 10.255.0.2 src_vni 10010 self permanent",
		"bridge fdb add 02:00:00:00:00:01 dev vxd dst 10.255.0.2 src_vni 10010 self extern_learn", "bridge fdb add 02:00:00:00:00:01 dev vxd master extern_learn vlan 10")
	file := filepath.Join(t.TempDir(), "leafd.yaml")
	if err := os.WriteFile(file, []byte("overlay: kernel\nuplinks: auto\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var err error
	leaf.Do(t, func() {
		for _, c := range commands {
			f := strings.Fields(c)
			if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", c, err, out)
			}
		}
		err = Leaf.check(file, false, &out)
	})
	t.Logf("leafd check: %v\n%s", err, &out)
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"VTEP 10.255.0.1, UDP port 4789, 1 peers, 1 addresses\n",
		"  VNI 10010: bridge br0 VLAN 10, vxd, MTU 1500\n", "  VNI 10020: bridge br0 VLAN 20, vxd, MTU 1500\n",
		"  port acc: untagged in VNI 10010\n", "  port trunk: VLAN 10 in VNI 10010, VLAN 20 in VNI 10020\n", "  port sub: VLAN 30 in VNI 10020\n",
		"bond0 is left to the kernel: bond0 is a bond: AF_XDP needs the queues of its members",
		"ports towards the fabric, as routes have it: up0, up1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
}
