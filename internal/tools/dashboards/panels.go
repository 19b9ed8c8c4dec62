package main

var boards = []board{
	{
		name: "fabric", title: "Loom: fabric", nodes: "label_values(loom_node_info, instance)",
		about: "Whether the fabric is well, and how evenly it is used.",
		rows: []row{
			{"State", []panel{
				{"Nodes", "Who there is, by role, name and VTEP.", "none", true, []query{
					{`loom_node_info{NODE} * on (instance) group_left (version) loom_build_info`, ""},
				}},
				{"Alerts", "What fires now (docs/alerts.md).", "none", true, []query{
					{`ALERTS{alertname=~"Loom.*", alertstate="firing"} and on () count(loom_node_info)`, ""},
				}},
				{"Not as they should be", "Peers that cannot be reached, paths that do not deliver, ports that are down.", "none", false, []query{
					{`sum(loom_peer_next_hops{NODE} == bool 0)`, "peers without a way"},
					{`sum(1 - loom_path_alive{NODE})`, "paths that do not deliver"},
					{`sum(1 - loom_port_up{NODE})`, "ports that are down"},
					{`sum(1 - loom_peer_capable{NODE})`, "peers that get plain VXLAN"},
				}},
			}},
			{"Load", []panel{
				{"Sent by links of the fabric", "Uplinks of leaves and ports of spines; equal lines are balance.", "bps", false, []query{
					{`8 * sum by (instance, port) (rate(loom_port_sent_bytes_total{NODE}RATE)) and on (instance, port) loom_port_info{kind=~"uplink|spine"}`, "{{instance}} {{port}}"},
				}},
				{"Utilisation of links", "Share of the link's rate, as the meters of CONGA see it.", "percentunit", false, []query{
					{`loom_port_utilisation_ratio{NODE} and on (instance, port) loom_port_info{kind=~"uplink|spine"}`, "{{instance}} {{port}}"},
				}},
				{"Imbalance of leaves", "(max − min) / mean of what a leaf's uplinks send; 0 is even.", "percentunit", false, []query{
					{`loom:uplink_imbalance:ratio{NODE}`, "{{instance}}"},
				}},
			}},
			{"Loss", []panel{
				{"Dropped", "Frames a second by reason; docs/metrics.md says what each means.", "pps", false, []query{
					{`sum by (reason) (rate(loom_drops_total{NODE}RATE)) > 0`, "{{reason}}"},
				}},
				{"Share dropped", "Of what a node received, all reasons together.", "percentunit", false, []query{
					{`sum by (instance) (rate(loom_drops_total{NODE}RATE)) / sum by (instance) (rate(loom_port_received_frames_total{NODE}RATE))`, "{{instance}}"},
				}},
				{"Unaccounted frames", "Received or made, and neither sent nor dropped nor held: always 0.", "none", false, []query{
					{`loom:frames_unaccounted:sum{NODE}`, "{{instance}}"},
				}},
			}},
			{"Paths", []panel{
				{"Round trip by path", "There by this uplink and back by any, ahead of data in every queue.", "s", false, []query{
					{`(loom_path_round_trip_seconds{NODE} > 0) * on (instance, peer, tag) group_left (port) loom_path_info`, "{{instance}} to {{peer}} by {{port}}"},
				}},
				{"Lost by path", "Share of the packets that the peer missed lately.", "percentunit", false, []query{
					{`loom_path_loss_ratio{NODE} * on (instance, peer, tag) group_left (port) loom_path_info`, "{{instance}} to {{peer}} by {{port}}"},
				}},
				{"Paths that do not deliver", "silent: nothing arrives; lossy: not all; narrow: no long packets.", "none", true, []query{
					{`loom_path_info{NODE, state!="alive"}`, ""},
				}},
			}},
		},
	},
	{
		name: "leaf", title: "Loom: leaf", nodes: `label_values(loom_node_info{role="leafd"}, instance)`,
		about: "What leaves decide, what they put in order, and what their hosts send.",
		rows: []row{
			{"Hosts and networks", []panel{
				{"Hosts' traffic", "Received from access ports, and sent there.", "bps", false, []query{
					{`8 * sum by (instance) (rate(loom_port_received_bytes_total{NODE}RATE) and on (instance, port) loom_port_info{kind="access"})`, "{{instance}} from hosts"},
					{`8 * sum by (instance) (rate(loom_port_sent_bytes_total{NODE}RATE) and on (instance, port) loom_port_info{kind="access"})`, "{{instance}} to hosts"},
				}},
				{"By network", "Put into tunnels.", "bps", false, []query{
					{`8 * sum by (vni) (rate(loom_vni_encapsulated_bytes_total{NODE}RATE))`, "VNI {{vni}}"},
				}},
				{"By peer", "Put into the tunnel to another leaf.", "bps", false, []query{
					{`8 * sum by (instance, peer) (rate(loom_peer_sent_bytes_total{NODE}RATE))`, "{{instance}} to {{peer}}"},
				}},
				{"Addresses", "In the fullest worker's table, by network.", "none", false, []query{
					{`max by (instance, vni) (loom_vni_fdb_entries{NODE})`, "{{instance}} VNI {{vni}}"},
				}},
				{"Flooded", "Broadcast, unknown-unicast and multicast frames, each once.", "pps", false, []query{
					{`sum by (instance, vni) (rate(loom_vni_flooded_frames_total{NODE}RATE))`, "{{instance}} VNI {{vni}}"},
				}},
				{"Dropped by port", "By the port that they came in by.", "pps", false, []query{
					{`sum by (instance, port) (rate(loom_drops_total{NODE}RATE))`, "{{instance}} {{port}}"},
				}},
			}},
			{"Balancing", []panel{
				{"Sent by uplink", "What a leaf's uplinks carry.", "bps", false, []query{
					{`8 * sum by (instance, port) (rate(loom_port_sent_bytes_total{NODE}RATE)) and on (instance, port) loom_port_info{kind="uplink"}`, "{{instance}} {{port}}"},
				}},
				{"Congestion towards peers", "As the peer reported it, quantised to congestion.q bits.", "none", false, []query{
					{`max by (instance, peer, tag) (loom_congestion_to_leaf_metric{NODE})`, "{{instance}} to {{peer}} by {{tag}}"},
				}},
				{"Flowlets that move", "Share of those that start on another uplink than the flow's last one.", "percentunit", false, []query{
					{`sum by (instance, scheme) (rate(loom_scheme_flowlets_moved_total{NODE}RATE)) / sum by (instance, scheme) (rate(loom_scheme_flowlets_started_total{NODE}RATE))`, "{{instance}} {{scheme}}"},
				}},
				{"Decisions", "Times that a scheme chose a path: for a frame or for a flowlet.", "ops", false, []query{
					{`sum by (instance, scheme) (rate(loom_scheme_decisions_total{NODE}RATE))`, "{{instance}} {{scheme}}"},
				}},
				{"Queues of uplinks", "Bytes in data queues now.", "bytes", false, []query{
					{`sum by (instance, port) (loom_port_queue_bytes{NODE}) and on (instance, port) loom_port_info{kind="uplink"}`, "{{instance}} {{port}}"},
				}},
				{"Round trips to peers", "Of HELLOs, which go ahead of data in every queue.", "s", false, []query{
					{`histogram_quantile(0.5, sum by (instance, le) (rate(loom_round_trip_seconds_bucket{NODE}RATE)))`, "{{instance}} p50"},
					{`histogram_quantile(0.99, sum by (instance, le) (rate(loom_round_trip_seconds_bucket{NODE}RATE)))`, "{{instance}} p99"},
				}},
			}},
			{"ConWeave: source", []panel{
				{"Epochs", "One is a round trip, or a reroute.", "ops", false, []query{
					{`sum by (instance) (rate(loom_conweave_epochs_total{NODE}RATE))`, "{{instance}}"},
				}},
				{"What becomes of late replies", "A cut-off ends in a reroute, or in attempts that find no path.", "ops", false, []query{
					{`sum by (instance) (rate(loom_conweave_reroutes_total{NODE}RATE))`, "{{instance}} rerouted"},
					{`sum by (instance) (rate(loom_conweave_aborts_total{NODE}RATE))`, "{{instance}} all paths busy"},
					{`sum by (instance) (rate(loom_conweave_refused_total{NODE}RATE))`, "{{instance}} refused by the peer"},
				}},
				{"Reply time", "From a request to its reply, late ones too.", "s", false, []query{
					{`histogram_quantile(0.5, sum by (instance, le) (rate(loom_conweave_reply_seconds_bucket{NODE}RATE)))`, "{{instance}} p50"},
					{`histogram_quantile(0.99, sum by (instance, le) (rate(loom_conweave_reply_seconds_bucket{NODE}RATE)))`, "{{instance}} p99"},
				}},
			}},
			{"Order at the destination", []panel{
				{"Out of order", "Share of the frames that a scheme puts in order, and that went on out of order; the objective is one in a thousand.", "percentunit", false, []query{
					{`loom:unordered:ratio_rate10m{NODE}`, "{{instance}} {{scheme}}"},
				}},
				{"Held", "Share of ConWeave's frames that had to wait.", "percentunit", false, []query{
					{`sum by (instance) (rate(loom_reorder_held_frames_total{NODE}RATE)) / sum by (instance) (rate(loom_reorder_arrived_frames_total{NODE}RATE))`, "{{instance}}"},
				}},
				{"Hold time", "Of a queue, from its first frame on.", "s", false, []query{
					{`histogram_quantile(0.5, sum by (instance, le) (rate(loom_reorder_hold_seconds_bucket{NODE}RATE)))`, "{{instance}} p50"},
					{`histogram_quantile(0.99, sum by (instance, le) (rate(loom_reorder_hold_seconds_bucket{NODE}RATE)))`, "{{instance}} p99"},
				}},
				{"Held bytes", "By the port that they wait for: now, and what 99 of 100 frames that have to wait find at most.", "bytes", false, []query{
					{`sum by (instance, port) (loom_reorder_port_waiting_bytes{NODE})`, "{{instance}} {{port}}"},
					{`histogram_quantile(0.99, sum by (instance, port, le) (rate(loom_reorder_port_waiting_depth_bytes_bucket{NODE}RATE)))`, "{{instance}} {{port}} p99"},
				}},
				{"Flushes", "Anything but tail is a queue that was not drained as it should.", "ops", false, []query{
					{`sum by (instance, cause) (rate(loom_reorder_flushes_total{NODE}RATE))`, "{{instance}} {{cause}}"},
				}},
				{"Control bytes against data", "ConWeave Table 4.", "percentunit", false, []query{
					{`sum by (instance, opcode) (rate(loom_reorder_control_bytes_total{NODE}RATE)) / on (instance) group_left () sum by (instance) (rate(loom_reorder_arrived_bytes_total{NODE}RATE))`, "{{instance}} {{opcode}}"},
				}},
			}},
		},
	},
	{
		name: "spine", title: "Loom: spine", nodes: `label_values(loom_node_info{role="spined"}, instance)`,
		about: "What spines forward, by port and next hop.",
		rows: []row{
			{"Ports", []panel{
				{"Received by port", "From leaves, or other spines.", "bps", false, []query{
					{`8 * sum by (instance, port) (rate(loom_port_received_bytes_total{NODE}RATE) and on (instance, port) loom_port_info{kind="spine"})`, "{{instance}} {{port}}"},
				}},
				{"Sent by port", "To leaves, or other spines.", "bps", false, []query{
					{`8 * sum by (instance, port) (rate(loom_port_sent_bytes_total{NODE}RATE) and on (instance, port) loom_port_info{kind="spine"})`, "{{instance}} {{port}}"},
				}},
				{"Utilisation", "Share of the link's rate.", "percentunit", false, []query{
					{`loom_port_utilisation_ratio{NODE} and on (instance, port) loom_port_info{kind="spine"}`, "{{instance}} {{port}}"},
				}},
				{"Queues", "Bytes in data queues now.", "bytes", false, []query{
					{`sum by (instance, port) (loom_port_queue_bytes{NODE} and on (instance, port) loom_port_info{kind="spine"})`, "{{instance}} {{port}}"},
				}},
				{"CE raised", "Share of the frames whose CE this hop raised: it was the busiest so far.", "percentunit", false, []query{
					{`sum by (instance, port) (rate(loom_port_ce_raised_frames_total{NODE}RATE) and on (instance, port) loom_port_info{kind="spine"}) / sum by (instance, port) (rate(loom_port_sent_frames_total{NODE}RATE))`, "{{instance}} {{port}}"},
				}},
				{"ECN marks", "Frames on which congestion was marked for hosts.", "pps", false, []query{
					{`sum by (instance, port) (rate(loom_port_marked_frames_total{NODE}RATE) and on (instance, port) loom_port_info{kind="spine"})`, "{{instance}} {{port}}"},
				}},
			}},
			{"Forwarding", []panel{
				{"Sent by next hop", "By port and gateway.", "bps", false, []query{
					{`8 * sum by (instance, port, gateway) (rate(loom_next_hop_sent_bytes_total{NODE}RATE) and on (instance, port) loom_port_info{kind="spine"})`, "{{instance}} {{port}} {{gateway}}"},
				}},
				{"Dropped", "Frames a second by reason.", "pps", false, []query{
					{`sum by (instance, reason) (rate(loom_drops_total{NODE}RATE) and on (instance, port) loom_port_info{kind="spine"})`, "{{instance}} {{reason}}"},
				}},
				{"What XDP did", "With the frames that came: to the daemon, to the kernel, forwarded by itself.", "pps", false, []query{
					{`sum by (instance, verdict) (rate(loom_classifier_frames_total{NODE}RATE) and on (instance, port) loom_port_info{kind="spine"})`, "{{instance}} {{verdict}}"},
				}},
			}},
		},
	},
	{
		name: "worker", title: "Loom: workers and process", nodes: "label_values(loom_node_info, instance)",
		about: "How busy workers are, what their rings meet, and what the process takes.",
		rows: []row{
			{"Workers", []panel{
				{"Rounds", "A worker's rounds over its ports, with a burst or none.", "ops", false, []query{
					{`sum by (instance, worker) (rate(loom_worker_bursts_total{NODE}RATE))`, "{{instance}} {{worker}}"},
				}},
				{"Sleeps", "Times that a worker slept for want of work; none: it is busy, or polls.", "ops", false, []query{
					{`sum by (instance, worker) (rate(loom_worker_sleeps_total{NODE}RATE))`, "{{instance}} {{worker}}"},
				}},
				{"Frames a round", "What the node received in a round; 64 is a full burst of a port.", "none", false, []query{
					{`sum by (instance) (rate(loom_port_received_frames_total{NODE}RATE)) / sum by (instance) (rate(loom_worker_bursts_total{NODE}RATE))`, "{{instance}}"},
				}},
				{"Held frames", "In queues, in delay lines and waiting for neighbours.", "none", false, []query{
					{`sum by (instance, worker) (loom_worker_held_frames{NODE})`, "{{instance}} {{worker}}"},
				}},
				{"Addresses", "In each worker's table.", "none", false, []query{
					{`sum by (instance, worker) (loom_fdb_entries{NODE})`, "{{instance}} {{worker}}"},
				}},
				{"Lost between workers", "Addresses and messages that did not reach another worker, as it was behind.", "ops", false, []query{
					{`sum by (instance) (rate(loom_fdb_gossip_lost_total{NODE}RATE)) + sum by (instance) (rate(loom_leaf_messages_lost_total{NODE}RATE))`, "{{instance}}"},
				}},
			}},
			{"Rings", []panel{
				{"Lost before workers see them", "The RX ring was full, or there was no buffer to receive into.", "pps", false, []query{
					{`sum by (instance, port) (rate(loom_xsk_rx_ring_full_total{NODE}RATE) + rate(loom_xsk_fill_ring_empty_total{NODE}RATE))`, "{{instance}} {{port}}"},
				}},
				{"TX ring full", "Times that the TX ring had no room for what was to be sent.", "ops", false, []query{
					{`sum by (instance, port) (rate(loom_xsk_tx_ring_full_total{NODE}RATE))`, "{{instance}} {{port}}"},
				}},
				{"Kicks", "System calls that told the kernel to send.", "ops", false, []query{
					{`sum by (instance, port) (rate(loom_xsk_kicks_total{NODE}RATE))`, "{{instance}} {{port}}"},
				}},
			}},
			{"Process", []panel{
				{"CPU", "Of all threads; each busy worker takes one core.", "none", false, []query{
					{`rate(process_cpu_seconds_total{NODE}RATE) and on (instance) loom_node_info`, "{{instance}}"},
				}},
				{"Memory", "Resident, packet buffers included.", "bytes", false, []query{
					{`process_resident_memory_bytes{NODE} and on (instance) loom_node_info`, "{{instance}}"},
				}},
				{"Heap", "Of Go, in use: it should not grow.", "bytes", false, []query{
					{`go_memstats_heap_inuse_bytes{NODE} and on (instance) loom_node_info`, "{{instance}}"},
				}},
			}},
		},
	},
}
