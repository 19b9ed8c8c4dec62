// Package archtest holds the architecture of ARCHITECTURE.md as a check: which
// package may import which, and what the sans-I/O core may not use.
package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// module is the path that the project's own import paths start with.
const module = "github.com/loomfabric/loom"

// layers lists the packages from the bottom to the top. A package may import
// those of lower layers only. An entry stands for the package and those below
// its path that have no entry of their own.
var layers = [][]string{
	{"internal/mono", "internal/drop", "internal/units", "internal/field", "internal/stat", "internal/snapshot", "internal/capture", "internal/record"},
	{"overlay", "internal/flowtable", "internal/gcra"},
	{"congestion", "reorder", "liveness"},
	{"balance"},
	{"leaf"},
	{"internal/yamlfile", "internal/ids", "internal/peercred", "internal/events"},
	{"config/vocab"},
	{"config/fabric"},
	{"bpf"},
	{"dataplane/xsk"},
	{"dataplane"},
	{"internal/ethtool", "internal/rtnl", "internal/namespace", "internal/httpd", "internal/handover", "internal/chart", "internal/spread", "internal/status", "internal/buildinfo", "internal/manpage", "internal/natural"},
	{"config"},
	{"control/bridge"},
	{"control", "internal/telemetry", "internal/workload", "internal/measure", "internal/admin", "sim/engine"},
	{"internal/doctor"},
	{"internal/support"},
	{"internal/daemon", "internal/loomctl", "internal/web", "lab", "sim/network", "sim/parallel"},
	{"sim/tcp", "sim/udp", "sim/rdma", "sim/node", "sim/traffic", "sim/theory"},
	{"sim/topo"},
	{"sim"},
	{"internal/experiment"},
	{"internal/experiment/report"},
	{"cmd"},
}

// sameLayer lists the arrows within a layer that are wanted.
var sameLayer = map[[2]string]bool{
	{"internal/telemetry", "control"}: true, // exports the mirror's counters
}

// free packages are tests and tools: they may import anything of the module,
// and nothing but tests may import them.
var free = []string{"test", "internal/archtest", "internal/testenv", "internal/tools"}

// core packages are sans-I/O.
var core = []string{"internal/mono", "internal/drop", "internal/units", "internal/field", "internal/flowtable", "internal/gcra", "overlay", "congestion", "reorder", "liveness", "balance", "leaf"}

// virtual packages run in virtual time: they drive the core as the data plane
// does, and know nothing of what is real. Experiments are among them: they know
// the simulator's models, and the lab only as a runner that a command gives them.
var virtual = []string{"sim", "internal/experiment"}

// clockless packages are not of the core, but have no more clock, goroutines or
// global randomness than it: a run's seed decides everything.
var clockless = []string{"sim/engine", "sim/network", "sim/node", "sim/topo", "sim/tcp", "sim/rdma", "sim/traffic", "sim/theory", "internal/measure"}

// notVirtual are what a virtual package must not import although it lies lower.
var notVirtual = []string{"bpf", "dataplane", "control", "config", "internal/telemetry", "internal/httpd", "internal/ethtool", "internal/rtnl", "internal/namespace", "internal/handover", "internal/daemon", "internal/admin", "internal/loomctl", "internal/web", "lab"}

// shared packages are those below a folder of notVirtual that are neither real nor
// virtual: the vocabulary of files.
var shared = []string{"config/vocab", "config/fabric"}

// coreImports are the standard packages that the core may import. A list of
// what is allowed: nothing else can bring in a clock, a socket or a lock.
// sync/atomic is there and sync is not: what workers share is words that nobody
// ever waits for.
var coreImports = []string{
	"cmp", "encoding/binary", "encoding/hex", "errors", "fmt", "iter", "math", "math/bits",
	"math/rand/v2", "net/netip", "slices", "sort", "strconv", "strings", "sync/atomic", "time", "unsafe",
	"github.com/dchest/siphash", // a function of a key and bytes
}

// coreForbidden are the functions of allowed packages that read a clock, wait
// or draw on global randomness.
var coreForbidden = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"math/rand/v2": {"Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint", "UintN", "Uint32",
		"Uint32N", "Uint64", "Uint64N", "N", "Float32", "Float64", "ExpFloat64", "NormFloat64", "Perm", "Shuffle"},
}

// find returns the entry of list that pkg belongs to: the longest that equals
// it or is a folder above it.
func find(list []string, pkg string) (entry string, ok bool) {
	for _, e := range list {
		if (pkg == e || strings.HasPrefix(pkg, e+"/")) && len(e) >= len(entry) {
			entry, ok = e, true
		}
	}
	return entry, ok
}

func layerOf(pkg string) (layer int, entry string) {
	layer = -1
	for i, l := range layers {
		if e, ok := find(l, pkg); ok && len(e) > len(entry) {
			layer, entry = i, e
		}
	}
	return layer, entry
}

// check returns what is wrong with the graph: for each package of the module,
// by full import path, what its files other than tests import.
func check(graph map[string][]string) []string {
	var wrong []string
	for from, imports := range graph {
		pkg := strings.TrimPrefix(from, module+"/")
		_, isCore := find(core, pkg)
		_, isFree := find(free, pkg)
		layer, entry := layerOf(pkg)
		if layer < 0 && !isFree {
			wrong = append(wrong, fmt.Sprintf("%s has no layer: give it one in internal/archtest and ARCHITECTURE.md", pkg))
			continue
		}
		for _, path := range imports {
			to, own := strings.CutPrefix(path, module+"/")
			switch {
			case !own && isCore && !slices.Contains(coreImports, path):
				wrong = append(wrong, fmt.Sprintf("%s is sans-I/O and must not import %s", pkg, path))
			case own && !isFree:
				if why := checkArrow(layer, entry, to); why != "" {
					wrong = append(wrong, fmt.Sprintf("%s must not import %s: %s", pkg, to, why))
				}
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func checkArrow(layer int, entry, to string) string {
	if _, ok := find(free, to); ok {
		return "it is for tests and tools"
	}
	toLayer, toEntry := layerOf(to)
	_, fromVirtual := find(virtual, entry)
	_, toReal := find(notVirtual, to)
	_, toShared := find(shared, to)
	_, toVirtual := find(virtual, to)
	switch {
	case toLayer < 0:
		return "it has no layer"
	case fromVirtual && toReal && !toShared:
		return "a simulation knows nothing of what is real"
	case toVirtual && !fromVirtual && entry != "cmd":
		return "nothing real knows of simulations"
	case toLayer > layer:
		return "the arrow points up"
	case toLayer == layer && entry != toEntry && !sameLayer[[2]string{entry, toEntry}]:
		return "they are of one layer"
	}
	return ""
}
