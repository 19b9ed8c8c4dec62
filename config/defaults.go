package config

import (
	"cmp"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

// Defaults of values that depend on others, or stand in lists.
const (
	defaultQueue    units.Size = 512 << 10
	defaultMinBurst units.Size = 16 << 10

	// ARP, neighbour discovery and DHCP of thousands of hosts stay far below.
	defaultStorm                     = 10_000
	defaultStormBandwidth units.Rate = 100e6
)

// Where the daemons serve the admin API.
const (
	DefaultLeafAdmin  = "unix:/run/loom/leafd.sock"
	DefaultSpineAdmin = "unix:/run/loom/spined.sock"
)

// Defaults is the one place that defaults come from: a node's common values,
// with the addresses at which it serves metrics and the admin API.
func Defaults(metrics, admin string) Common {
	return Common{
		Log:       Log{Level: "info", Format: "text"},
		Telemetry: Telemetry{Listen: metrics},
		Admin:     Admin{Listen: admin},
		VXLANPort: overlay.DefaultPort,
		Workers:   1,
		SpinFor:   50 * time.Microsecond,
		RingSize:  2048,
		HoldTime:  3 * time.Second, // as long as the kernel asks, three times at intervals of a second
		Drain:     500 * time.Millisecond,
	}
}

// DefaultLeaf is a leaf's configuration before its file is read.
func DefaultLeaf() *Leaf {
	return &Leaf{
		Common:    Defaults("127.0.0.1:9464", DefaultLeafAdmin),
		FDB:       FDB{Size: 128 << 10, Age: 5 * time.Minute},
		Balancing: vocab.Balancing{Scheme: "ecmp"},
	}
}

// DefaultSpine is a spine's configuration before its file is read.
func DefaultSpine() *Spine {
	return &Spine{Common: Defaults("127.0.0.1:9465", DefaultSpineAdmin)}
}

// profile is what the sections of leafd's and spined's files start from if they
// name no profile.
const profile = balance.Datacenter

// fill completes what depends on the file's other values.
func (l *Leaf) fill() {
	for i := range l.Uplinks {
		l.Uplinks[i].Egress.fill()
	}
	for i := range l.Access {
		l.Access[i].Egress.fill()
	}
	for i := range l.VNIs {
		v := &l.VNIs[i]
		if v.Flood == nil {
			v.Flood = append(v.Flood, l.Peers...)
		}
		v.Storm.Rate = cmp.Or(v.Storm.Rate, defaultStorm)
		v.Storm.Burst = cmp.Or(v.Storm.Burst, max(v.Storm.Rate/10, 1))
		v.Storm.Bandwidth = cmp.Or(v.Storm.Bandwidth, defaultStormBandwidth)
	}
}

func (s *Spine) fill() {
	if s.VTEPs.Any() && s.Ports == nil {
		s.Ports = SpinePorts{}
	}
	for i := range s.Ports {
		s.Ports[i].Egress.fill()
	}
}

func (e *Egress) fill() {
	e.Queue = cmp.Or(e.Queue, defaultQueue)
	if e.Shaper.Rate > 0 && e.Shaper.Burst == 0 {
		e.Shaper.Burst = max(units.Size(e.Shaper.Rate/8/1000), defaultMinBurst)
	}
	e.ECN.Complete()
}
