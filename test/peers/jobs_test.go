package peers

import (
	"testing"

	"github.com/cilium/ebpf"
)

// job is what a device does to frames.
type job struct {
	name    string
	in, out string // ports of the device that frames come in by and leave by
	spine   bool
	// frames returns what the generator sends, for a tenant's frame of n bytes, and what the
	// sink is to get.
	frames func(d *bed, n int) (sent, wanted)
	// devices are those that are compared.
	devices []device
}

// device is a device under test.
type device struct {
	name    string
	tools   []string // programs that it needs
	install string   // packages that have them
	// polls reports whether threads of the device poll AF_XDP rings. They have their core in
	// every placement, and the softirq that fills their rings has the generator's.
	polls bool
	// start sets the device up. It returns when the device forwards.
	start func(t testing.TB, d *bed) running
}

// running is a device that forwards.
type running struct {
	pids []int // of its processes
	// fast says what XDP has forwarded by itself, if that has to be found out.
	fast func(t testing.TB) fastCount
}

// Names of devices that results are compared by.
const (
	loomWorkers = "Loom AF_XDP"
	loomFast    = "Loom fast path"
	loomConga   = loomFast + ", conga"
	openVSwitch = "Open vSwitch"
	theKernel   = "kernel"
	theFloor    = "push + redirect"
)

var (
	workers = device{loomWorkers, []string{"ip"}, "iproute2", true, startWorkers}
	fast    = device{loomFast, []string{"ip"}, "iproute2", false, startFast}
	conga   = device{loomConga, []string{"ip"}, "iproute2", false, startFlowlets}
	ovs     = device{openVSwitch, []string{"ip", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"}, "iproute2 openvswitch-switch", true, startOVS}
	kernel  = device{theKernel, []string{"ip", "bridge"}, "iproute2", false, startKernel}
	floor   = device{theFloor, []string{"ip"}, "iproute2", false, startFloor}
)

const (
	encapsulation = "encapsulation"
	decapsulation = "decapsulation"
	spine         = "spine"
)

var jobs = []job{
	{encapsulation, "acc", "upl", false, encapsulated, []device{workers, fast, conga, ovs, kernel, floor}},
	{decapsulation, "upl", "acc", false, decapsulated, []device{workers, fast, ovs, kernel}},
	{spine, "dn0", "dn1", true, routed, []device{workers, fast, kernel}},
}

// uplink returns the device's port to the other VTEP.
func (d *bed) uplink() *port {
	if d.in.name == "upl" {
		return &d.in
	}
	return &d.out
}

// devmap describes a map of one device.
func devmap() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "peers_tx", Type: ebpf.DevMap, KeySize: 4, ValueSize: 4, MaxEntries: 1}
}
