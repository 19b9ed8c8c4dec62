package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/units"
)

// rose adds a finding for each port at which one of these counters rose.
func rose(n *Node, add adder, mend func(port string) string, what string, counters ...string) {
	rises := n.ringRises(counters...)
	for _, port := range slices.Sorted(maps.Keys(rises)) {
		add(port, mend(port), "%s: %d times while doctor looked, at %s", what, rises[port], port)
	}
}

func rxLost(n *Node, add adder) {
	rose(n, add, func(string) string {
		return "more workers and queues, or ring_size: 8192, in " + n.Parameters.File + "; then " + n.restart()
	},
		"frames were lost before a worker saw them", "fill_ring_empty", "rx_ring_full", "rx_dropped", "rx_invalid_descriptors")
}

func txLost(n *Node, add adder) {
	rose(n, add, func(port string) string { return n.command("ip -s link show dev %s", port) }, "the kernel refused to send", "kick_errors", "tx_invalid_descriptors")
}

func unserved(n *Node, add adder) {
	rose(n, add, func(port string) string { return n.command("ethtool -L %s combined %d", port, n.Parameters.Workers) },
		"frames came to a queue that no worker serves", "drop_no_socket", "pass_no_socket")
}

func card(n *Node, add adder) {
	eachLink(n, func(name string, l *Link) {
		if l.Lost[1] > l.Lost[0] {
			add(name, n.command("ethtool -S %s", name), "%s lost or broke %d frames while doctor looked", name, l.Lost[1]-l.Lost[0])
		}
	})
}

// Reasons for drops that have a probe of their own.
var (
	stormReasons   = []drop.Reason{drop.StormLimit, drop.FloodYields}
	sourceReasons  = []drop.Reason{drop.VTEPUnknown, drop.ReversePath, drop.VTEPForeign, drop.VTEPLooped, drop.NotOurMAC}
	sealReasons    = []drop.Reason{drop.BadSeal}
	networkReasons = []drop.Reason{drop.VNIUnknown, drop.VLANUnknown, drop.InnerVLAN}
	bufferReasons  = []drop.Reason{drop.NoBuffer, drop.NoFrame, drop.ControlFull}
	queueReasons   = []drop.Reason{drop.QueueFull}
	// usualReasons are those for which a fabric that works drops frames, too.
	usualReasons = []drop.Reason{drop.LinkLocal, drop.NoMember, drop.SamePort, drop.SplitHorizon, drop.NotMirrored, drop.Shutdown, drop.HopGone, drop.Copy, drop.Control, drop.TTLExpired}
)

// dropped adds a finding if drops for these reasons rose.
func dropped(n *Node, add adder, reasons []drop.Reason, mend string) {
	var texts []string
	for _, r := range reasons {
		if d := n.rising(r.String()); d > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", d, r))
		}
	}
	if texts != nil {
		add(strings.Join(texts, ", "), mend, "frames were dropped while doctor looked: %s", strings.Join(texts, ", "))
	}
}

func storm(n *Node, add adder) {
	dropped(n, add, stormReasons, "find the host that floods: "+n.loomctl("ports")+"; raise vnis.storm in "+n.Parameters.File+" if it may")
}

func unknownSource(n *Node, add adder) {
	dropped(n, add, sourceReasons, "peers: in "+n.Parameters.File+"; reverse_path: feasible if routes are asymmetric; docs/security.md")
}

func seal(n *Node, add adder) {
	dropped(n, add, sealReasons, "the same keys in the control_key_file of all leaves; then "+n.restart())
}

func networks(n *Node, add adder) {
	dropped(n, add, networkReasons, "access.vlans and vnis in "+n.Parameters.File+"; then "+n.reload())
}

func buffers(n *Node, add adder) {
	dropped(n, add, bufferReasons, "frames: in "+n.Parameters.File+"; then "+n.restart())
}

func congested(n *Node, add adder) {
	dropped(n, add, queueReasons, n.loomctl(either(n.leaf(), "conga", "ports")))
}

// fullLink is from which part of its rate on a link is full, if frames wait for it.
const fullLink = 0.9

// saturated looks for links that are full. Drops do not show all of them: TCP has some at
// a time, with seconds in between in which the queue is long and nothing is lost.
func saturated(n *Node, add adder) {
	for i := range n.Later {
		now, was := &n.Later[i], n.port(n.Later[i].Port)
		if was == nil || now.TxBytes < was.TxBytes || now.Rate == 0 || n.Between <= 0 || now.QueueBytes+was.QueueBytes == 0 {
			continue
		}
		load := float64(now.TxBytes-was.TxBytes) * 8 / n.Between.Seconds() / float64(now.Rate)
		if load >= fullLink {
			add(now.Port, n.loomctl("top")+"; more links, a faster one, or a scheme that looks at load",
				"%s is full: it sent %.0f%% of its %v while doctor looked, and up to %v waited for it", now.Port, 100*load, units.Rate(now.Rate), units.Size(max(was.QueueBytes, now.QueueBytes)))
		}
	}
}

func drops(n *Node, add adder) {
	var rest []drop.Reason
	for r := drop.None + 1; r < drop.NumReasons; r++ {
		if !slices.Contains(slices.Concat(stormReasons, sourceReasons, sealReasons, networkReasons, bufferReasons, queueReasons, usualReasons), r) {
			rest = append(rest, r)
		}
	}
	dropped(n, add, rest, n.loomctl("stats")+"; docs/metrics.md#drop-reasons")
}

// fullFDB is from which part of it on a table of addresses is nearly full.
const fullFDB = 0.9

func fdb(n *Node, add adder) {
	for _, w := range n.Stats[1].Workers {
		if size := n.Parameters.FDBSize; size > 0 && float64(w.FDBEntries) >= fullFDB*float64(size) {
			add("fdb", fmt.Sprintf("fdb: {size: %d} in %s; then %s", 2*size, n.Parameters.File, n.restart()), "the table of addresses has %d of %d", w.FDBEntries, size)
			return
		}
	}
}
