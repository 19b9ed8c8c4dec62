package bpf

// XDP's actions (linux/bpf.h).
const (
	xdpDrop = 1
	xdpPass = 2
)

// verdictNames are the names of enum loom_verdict (loom.h), in its order. They
// are label values of a metric: add, never rename.
var verdictNames = [...]string{
	"redirect",        // to the socket, with metadata
	"no_meta",         // to the socket, without: malformed, or the driver gives no room
	"pass_not_ours",   // to the kernel: not VXLAN to an address of ours
	"pass_link_local", // to the kernel: LLDP, STP, LACP and the like
	"pass_no_socket",  // to the kernel: nobody serves the queue
	"neighbour",       // to the socket, without metadata: a message of the node at the link's other end
	"drop_no_socket",  // dropped: nobody serves the queue, and the port is closed
	"drop_no_room",    // dropped: no room for the VLAN tag that the driver took off

	// Where the overlay is the kernel's, to the kernel:
	"pass_group",       // for all, or for a group
	"pass_network",     // of a VLAN or a VNI that is not mirrored
	"pass_source",      // the source is not known to be behind this port and VLAN
	"pass_destination", // the destination is not known; from the fabric: not behind a port of ours
	"pass_not_served",  // the destination's port is not open, or no path leads to its peer
	"pass_refresh",     // so that the kernel knows that the source is still there
	"pass_peer",        // from a VTEP that is not known
	"pass_no_room",     // no room for the VLAN tag that the driver took off

	"fast", // forwarded by the program itself
}
