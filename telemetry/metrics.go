package telemetry

import "github.com/prometheus/client_golang/prometheus"

// descs are all metrics, in the order of their definition.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("loom_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

// trafficDesc is a pair of metrics, frames and bytes of the same thing.
type trafficDesc struct{ frames, bytes *prometheus.Desc }

func traffic(prefix, help string, labels ...string) trafficDesc {
	return trafficDesc{
		frames: desc(prefix+"_frames_total", "Frames "+help+".", labels...),
		bytes:  desc(prefix+"_bytes_total", "Bytes of frames "+help+".", labels...),
	}
}

// The metrics. Their names and labels are the operator's interface.
var (
	buildInfo = desc("build_info", "1; the labels say what was built.", "version", "revision", "goversion")
	nodeInfo  = desc("node_info", "1; the labels say what the node is.", "node", "role")

	portUp   = desc("port_up", "1 when the interface is up and has a carrier.", "port")
	portMTU  = desc("port_mtu_bytes", "MTU of the interface.", "port")
	portOpen = desc("port_open", "1 when the port's AF_XDP sockets are bound.", "port")
	portInfo = desc("port_info", "1; the labels say which modes were asked for and which were got.",
		"port", "kind", "xdp_mode_asked", "xdp_mode", "copy_mode_asked", "copy_mode")
	classifierFrames = desc("classifier_frames_total", "Frames that the port's XDP program saw, by its verdict.", "port", "verdict")

	portReceived = traffic("port_received", "received from the port", "port", "queue")
	portSent     = traffic("port_sent", "sent to the port", "port", "queue")
	portMarked   = traffic("port_marked", "marked with ECN CE in the port's queue", "port", "queue")
	frameDrops   = desc("frameDropstotal", "Frames discarded, by the port that they came in by and the reason.", "port", "reason")

	queueBytes  = desc("port_queue_bytes", "Bytes in the port's data queue.", "port", "queue")
	queuePeak   = desc("port_queue_peak_bytes", "Most bytes that the port's data queue has held.", "port", "queue")
	queueFrames = desc("port_queue_frames", "Frames in the port's data queue.", "port", "queue")
	utilisation = desc("port_utilisation_ratio", "Share of the link's rate that this queue uses; 0 when the rate is unknown.", "port", "queue")

	xskRXDropped   = desc("xsk_rx_dropped_total", "Frames that the kernel dropped before the RX ring.", "port", "queue")
	xskRXRingFull  = desc("xsk_rx_ring_full_total", "Frames that the kernel dropped because the RX ring was full.", "port", "queue")
	xskFillEmpty   = desc("xsk_fill_ring_empty_total", "Times that the kernel found the fill ring empty.", "port", "queue")
	xskRXInvalid   = desc("xsk_rx_invalid_descriptors_total", "Fill descriptors that the kernel refused.", "port", "queue")
	xskTXInvalid   = desc("xsk_tx_invalid_descriptors_total", "TX descriptors that the kernel refused.", "port", "queue")
	xskTXEmpty     = desc("xsk_tx_ring_empty_total", "Times that the kernel found the TX ring empty.", "port", "queue")
	xskKicks       = desc("xsk_kicks_total", "System calls that woke the kernel's transmission.", "port", "queue")
	xskKickAgain   = desc("xsk_kick_retries_total", "Wake-ups that the kernel asked to repeat.", "port", "queue")
	xskKickErrors  = desc("xsk_kick_errors_total", "Wake-ups that failed, such as on a link that is down.", "port", "queue")
	xskTXFull      = desc("xsk_tx_ring_full_total", "Times that the TX ring had no room.", "port", "queue")
	xskTXAbandoned = desc("xsk_tx_abandoned_total", "Frames sent that were still on the TX ring when the interface vanished.", "port", "queue")
	metaMissing    = desc("xsk_metadata_missing_total", "Frames parsed again because the XDP program could not attach metadata.", "port", "queue")

	framesHeld   = desc("frames_held", "Frames inside: in queues, delay lines, or waiting for a neighbour.", "worker")
	framesCopied = desc("frames_copied_total", "Frames made by replication.", "worker")
	workerBursts = desc("worker_bursts_total", "Bursts that the worker has processed.", "worker")
	workerSleeps = desc("worker_sleeps_total", "Times that the worker has gone to sleep.", "worker")

	fdbEntries    = desc("fdb_entries", "MAC addresses in the worker's table.", "worker")
	fdbLearned    = desc("fdb_learned_total", "MAC addresses learned.", "worker")
	fdbMoved      = desc("fdb_moved_total", "MAC addresses seen at another place than before.", "worker")
	fdbAged       = desc("fdb_aged_total", "MAC addresses forgotten because they were not seen.", "worker")
	fdbRefused    = desc("fdb_refused_total", "MAC addresses not learned: the table or a VNI's share is full, or they are static elsewhere.", "worker", "reason")
	fdbGossipLost = desc("fdb_gossip_lost_total", "Learned MAC addresses that other workers were not told of.", "worker")

	vniTraffic    = traffic("vni", "of the virtual network, by what was done with them", "vni", "path")
	vniFDBEntries = desc("vni_fdb_entries", "MAC addresses known in the virtual network.", "vni")

	peerSent     = traffic("peer_sent", "encapsulated towards the VTEP", "peer")
	peerReceived = traffic("peer_received", "decapsulated from the VTEP", "peer")
	peerNextHops = desc("peer_next_hops", "Next hops that lead to the VTEP now.", "peer")
	hopSent      = traffic("next_hop_sent", "sent by way of the next hop", "port", "next_hop")
	hopResolved  = desc("next_hop_resolved", "1 when the next hop's MAC address is known.", "port", "next_hop")

	controlLists      = desc("control_lists_total", "Times that the kernel's objects were listed.", "kind")
	controlListErrors = desc("control_list_errors_total", "Lists that failed and were repeated.", "kind")
	controlPublished  = desc("control_tables_published_total", "Tables given to the workers.")
	controlResolves   = desc("control_resolve_requests_total", "Requests to the kernel to resolve or confirm a neighbour.")
	controlUnresolved = desc("control_unresolved_next_hops", "Next hops in use whose MAC address is not known.")
	controlFull       = desc("control_table_full_total", "Next hops, peers and virtual networks left out because the tables were full.")
)
