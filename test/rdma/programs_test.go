//go:build rdma

package rdma

import "github.com/loomfabric/loom/test/machine"

// modules are what the guests need of the kernel besides devices: Soft-RoCE, what user
// space talks to, and the CRC of RoCE's ICRC, which the kernel would else want to load by
// itself.
var modules = []string{"crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"}

// programs are what the guests run of this machine.
var programs = []machine.Need{
	{Name: "ibv_rc_pingpong", Package: "ibverbs-utils"}, {Name: "ib_write_bw", Package: "perftest"}, {Name: "rping", Package: "rdmacm-utils"},
	{Name: "ip", Package: "iproute2"}, {Name: "rdma", Package: "iproute2"},
}

// Files that libibverbs and glibc load when a program runs: Soft-RoCE's provider and its
// registration, and what pthread_exit takes.
const (
	provider     = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"
	registration = "/etc/libibverbs.d/rxe.driver"
	unwinder     = "/lib/x86_64-linux-gnu/libgcc_s.so.1"
)

func needs() []machine.Need {
	all := append(append([]machine.Need{}, machine.Needs...), programs...)
	for _, f := range []string{provider, registration} {
		all = append(all, machine.Need{Name: f, Package: "ibverbs-providers"})
	}
	return all
}

// addPrograms adds the programs and all that they look for when they run.
func addPrograms(i *machine.Image) {
	for _, p := range programs {
		i.Program("/usr/bin/"+p.Name, p.Name)
	}
	i.Program(provider, provider)
	i.Add(registration, registration, 0o644)
	i.Program(unwinder, unwinder)
}
