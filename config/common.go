package config

import (
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
)

// Common is what leaves and spines have in common.
type Common struct {
	// Name is the node's name: in the log, in loomctl's answers, and as the label node
	// of the metric loom_build_info. Default: the host name.
	Name string `yaml:"name,omitempty"`
	// Log says how much is logged, and in which form.
	Log Log `yaml:"log,omitempty"`
	// Telemetry is where metrics and health are served.
	Telemetry Telemetry `yaml:"telemetry,omitempty"`
	// Admin is where people ask the running node, by loomctl.
	Admin Admin `yaml:"admin,omitempty"`
	// Record says where flight records go that the node writes unasked.
	Record Record `yaml:"record,omitempty"`
	// VXLANPort is the UDP port of the fabric's VXLAN (RFC 7348 §5).
	// Default: 4789.
	VXLANPort uint16 `yaml:"vxlan_port,omitempty"`
	// Workers is the number of forwarding threads; worker q serves queue q of
	// every port, so each port must have as many receive queues, and no
	// fewer transmit queues. Default: 1.
	Workers int `yaml:"workers,omitempty"`
	// Polling is how an idle worker waits: adaptive (spin, then sleep), busy
	// (spin always; for dedicated cores) or interrupt (sleep at once; for labs
	// and shared machines). Default: adaptive.
	Polling Polling `yaml:"polling,omitempty"`
	// SpinFor is how long an adaptive worker spins before it sleeps.
	// Default: 50us.
	SpinFor time.Duration `yaml:"spin_for,omitempty"`
	// Cores pins worker q to the q-th CPU of the list. Default: not pinned.
	Cores []int `yaml:"cores,omitempty"`
	// XDPMode is how the classifier is attached: auto (native, generic if the
	// driver cannot), native or generic. Default: auto.
	XDPMode XDPMode `yaml:"xdp_mode,omitempty"`
	// CopyMode is how frames cross between kernel and user space: auto
	// (zero-copy, copy if the driver cannot), zerocopy or copy. Default: auto.
	CopyMode CopyMode `yaml:"copy_mode,omitempty"`
	// RingSize is the number of entries of each AF_XDP ring; a power of two
	// from 256 to 16384. Default: 2048.
	RingSize int `yaml:"ring_size,omitempty"`
	// MaxPorts is how many ports the node has room for, at most 256: while it runs, ports
	// may be added up to that number. Packet buffers take memory for each of them, about
	// 9 MB a worker with rings of 2048. The place of a port that is removed is free for
	// another one after 10 seconds. Default: those that are listed, and 4 more, or 16
	// where routes say which ports there are.
	MaxPorts int `yaml:"max_ports,omitempty"`
	// Frames is the number of packet buffers of each worker. Default: enough for
	// the rings of as many ports as there is room for, for 256 packets in each data
	// queue, and for 4096 more in any of them. A buffer has 2048 bytes, 4096 if a port's MTU
	// is above 1774, and 16384 if one is above 3822, which needs Linux 6.6.
	Frames int `yaml:"frames,omitempty"`
	// Seed seeds flow hash and generators; give every run of an experiment the
	// same one to repeat it. Default: random at every start.
	Seed uint64 `yaml:"seed,omitempty"`
	// HoldTime is how long a frame waits for the MAC of its next hop. A new link of IPv6 has
	// none for up to two seconds, while the kernel checks its own address. Default: 3s, as
	// long as the kernel asks.
	HoldTime time.Duration `yaml:"hold_time,omitempty"`
	// ReversePath holds the outer source of the fabric's packets against the
	// routes to it (RFC 3704): strict (a route leads out of the port that the
	// packet came in by), feasible (there is a route; for asymmetric routing) or
	// off. Default: strict.
	ReversePath ReversePath `yaml:"reverse_path,omitempty"`
	// Congestion are the parameters of CONGA.
	Congestion vocab.Congestion `yaml:"congestion,omitempty"`
	// Drain is how long a node that was told to stop goes on sending what is
	// queued. Default: 500ms.
	Drain time.Duration `yaml:"drain,omitempty"`
}

// Log says how much is logged, and in which form.
type Log struct {
	// Level is debug, info, warn or error. Default: info.
	Level string `yaml:"level,omitempty"`
	// Format is text or json. Default: text.
	Format string `yaml:"format,omitempty"`
}

// Record says where flight records go that the node writes unasked.
type Record struct {
	// Dir is a directory that exists, in which the daemon keeps up to 8 flight records: one is
	// written when many frames are dropped at once, and when the daemon crashes or gets SIGQUIT.
	// Default: none are written; loomctl record dump asks for one.
	Dir string `yaml:"dir,omitempty"`
	// Off has the node keep no flight record. Default: false.
	Off bool `yaml:"off,omitempty"`
}

// Telemetry is where metrics and health are served.
type Telemetry struct {
	// Listen is HOST:PORT, unix:/path/of/a/socket, or off for none. It serves
	// /metrics, /healthz, /readyz and /debug/stats, without authentication unless
	// web_config says otherwise: keep it on loopback or a management network.
	// Default: 127.0.0.1:9464 (leafd), 127.0.0.1:9465 (spined).
	Listen string `yaml:"listen,omitempty"`
	// WebConfig is a file in the format of Prometheus' exporters: TLS with the node's
	// certificate, which clients' certificates are let in, users with passwords. It is
	// read again for each connection. Default: none, plain HTTP for everybody.
	WebConfig string `yaml:"web_config,omitempty"`
	// PerWorker shows what a port counts of each worker, with a label worker, which
	// makes a lot of series: ports times workers times 38. Default: false, the sum over
	// the workers.
	PerWorker bool `yaml:"per_worker,omitempty"`
}

// Admin is where people ask the running node, by loomctl.
type Admin struct {
	// Listen is unix:/path/of/a/socket, or off for none. It serves the admin
	// API to the daemon's user and group; what changes the node is for root and the
	// daemon's user alone. Where the default
	// cannot be listened at, a warning is logged, and the node forwards without. Beside
	// it, as leafd.handover, stands the socket that a successor takes over at (leafd
	// upgrade), for root and the daemon's user.
	// Default: unix:/run/loom/leafd.sock (leafd), unix:/run/loom/spined.sock
	// (spined).
	Listen string `yaml:"listen,omitempty"`
	// Remote is where loomweb and loomctl on other machines ask. They only read there, and
	// prove who they are by a certificate. Default: none.
	Remote AdminRemote `yaml:"remote,omitempty"`
}

// AdminRemote is where other machines ask a node.
type AdminRemote struct {
	// Listen is HOST:PORT, or off for none. Default: off.
	Listen string `yaml:"listen,omitempty"`
	// WebConfig is a file in the format of Prometheus' exporters, as telemetry.web_config,
	// with the node's certificate. It must ask clients for certificates: client_auth_type
	// RequireAndVerifyClientCert, and client_ca_file; client_allowed_sans says which of
	// them may ask. Required with listen.
	WebConfig string `yaml:"web_config,omitempty"`
}

// Egress is what stands between the forwarding decision and a port's ring.
type Egress struct {
	// LinkRate is the port's speed, for the utilisation meter. Default: the
	// shaper's rate if there is one, else the speed the kernel reports.
	LinkRate units.Rate `yaml:"link_rate,omitempty"`
	// Shaper limits the port's rate, for labs and sub-rate links.
	// Default: none.
	Shaper       Shaper `yaml:"shaper,omitempty"`
	vocab.Egress `yaml:",inline"`
}

// Shaper is a token bucket over Ethernet frame bytes.
type Shaper struct {
	// Rate is the long-term rate; 0 or absent: no shaper.
	Rate units.Rate `yaml:"rate,omitempty"`
	// Burst is the bucket: what may be sent at once after a pause.
	// Default: 1 ms at the rate, but at least 16KiB.
	Burst units.Size `yaml:"burst,omitempty"`
}
