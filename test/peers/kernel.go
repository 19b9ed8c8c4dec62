package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"
)

// kernelDevice is the kernel's bridge with a vxlan port. All of it runs in the
// receiving interface's NAPI, which gets a thread on the device's core: as a
// softirq it would run on the generator's.
type kernelDevice struct {
	napi []int
	pass link.Link
}

func (*kernelDevice) name() string         { return "kernel" }
func (*kernelDevice) softirqReceive() bool { return false }

func (k *kernelDevice) start(b *bench) error {
	for _, line := range []string{
		"addr add " + localVTEP + "/24 dev upl",
		fmt.Sprintf("neigh add %s lladdr %s dev upl nud permanent", peerVTEP, b.endMAC),
		"link add br0 type bridge mcast_snooping 0",
		fmt.Sprintf("link add vx type vxlan id %d local %s dstport %d noudpcsum nolearning", vni, localVTEP, vxlanPort),
		"link set vx master br0",
		"link set acc master br0",
		"link set vx up",
		"link set br0 up",
	} {
		if err := b.ip("dut", line); err != nil {
			return err
		}
	}
	// A veth has NAPI, which frames that are redirected to it need, only with an
	// XDP program or GRO. A program that passes all costs less.
	var err error
	if k.pass, err = b.attachXDP("acc", xdpPass); err != nil {
		return err
	}
	if err := b.sh("dut", strings.Join([]string{
		// Where br_netfilter is loaded it would filter bridged frames.
		"for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 > $f; done",
		fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev vx dst %s", peerVTEP),
		fmt.Sprintf("bridge fdb add %s dev vx self dst %s", dstMAC, peerVTEP),
		fmt.Sprintf("bridge fdb add %s dev vx master static", dstMAC),
		"ethtool -K acc gro off",
		"echo 1 > /sys/class/net/acc/threaded",
	}, "\n")); err != nil {
		return err
	}
	if err := ready("NAPI thread of acc", 2*time.Second, func() bool {
		var err error
		k.napi, err = kernelThreads("napi/acc-")
		return err == nil && len(k.napi) > 0
	}); err != nil {
		return err
	}
	return bind(k.napi, dutCore)
}

func (k *kernelDevice) processes() []int { return k.napi }

// stop detaches the program; all else goes with the namespace.
func (k *kernelDevice) stop() error {
	if k.pass == nil {
		return nil
	}
	return k.pass.Close()
}
