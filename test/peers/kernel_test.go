package peers

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// startKernel sets up the kernel's bridge with a vxlan port. All of it runs in the
// receiving interface's NAPI, which gets a thread on the device's core: as a
// softirq it would run on the generator's.
func startKernel(b *testing.B, d *bed) (pids []int) {
	d.underlay(b)
	for _, line := range []string{
		"link add br0 type bridge mcast_snooping 0",
		fmt.Sprintf("link add vx type vxlan id %d local %s dstport %d noudpcsum nolearning", vni, localVTEP, vxlanPort),
		"link set vx master br0",
		"link set acc master br0",
		"link set vx up",
		"link set br0 up",
	} {
		ip(b, d.dut, line)
	}
	// A veth has NAPI, which frames that are redirected to it need, only with an
	// XDP program or GRO. A program that passes all costs less.
	pass := d.attachXDP(b, "acc", xdpPass)
	b.Cleanup(func() { pass.Close() })
	// The shell has the namespace's own /sys.
	command(b, nil, "ip", "netns", "exec", d.dut.Name, "sh", "-ec", strings.Join([]string{
		// Where br_netfilter is loaded it would filter bridged frames.
		"for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 > $f; done",
		fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev vx dst %s", peerVTEP),
		fmt.Sprintf("bridge fdb add %s dev vx self dst %s", dstMAC, peerVTEP),
		fmt.Sprintf("bridge fdb add %s dev vx master static", dstMAC),
		"ethtool -K acc gro off",
		"echo 1 > /sys/class/net/acc/threaded",
	}, "\n"))
	ready(b, "NAPI thread of acc", 2*time.Second, func() bool {
		pids = kernelThreads(b, "napi/acc-")
		return len(pids) > 0
	})
	for _, pid := range pids {
		bind(b, pid, dutCore)
	}
	return pids
}
