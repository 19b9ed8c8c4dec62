package config

import (
	"strconv"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// Defaults of values that depend on others, or stand in lists.
const (
	defaultQueue    Size = 512 << 10
	defaultMinBurst Size = 16 << 10
	defaultPmax          = 0.2
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
		SpinFor:   Duration(50 * time.Microsecond),
		RingSize:  2048,
		HoldTime:  Duration(time.Second),
		Drain:     Duration(500 * time.Millisecond),
	}
}

// DefaultLeaf is a leaf's configuration before its file is read.
func DefaultLeaf() *Leaf {
	return &Leaf{
		Common:    Defaults("127.0.0.1:9464", DefaultLeafAdmin),
		FDB:       FDB{Size: 128 << 10, Age: Duration(5 * time.Minute)},
		Balancing: Balancing{Scheme: "ecmp"},
	}
}

// DefaultSpine is a spine's configuration before its file is read.
func DefaultSpine() *Spine {
	return &Spine{Common: Defaults("127.0.0.1:9465", DefaultSpineAdmin)}
}

// fill completes what depends on the file's other values.
func (l *Leaf) fill(d *document) {
	l.Congestion.fill()
	l.ConWeave.fill(l.Congestion.Profile)
	l.Balancing.fill(d, "")
	for i := range l.Classes {
		l.Classes[i].Balancing.fill(d, "classes["+strconv.Itoa(i)+"]")
	}
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
		if v.Storm.Rate > 0 && v.Storm.Burst == 0 {
			v.Storm.Burst = max(v.Storm.Rate/10, 1)
		}
	}
}

func (s *Spine) fill() {
	s.Congestion.fill()
	for i := range s.Ports {
		s.Ports[i].Egress.fill()
	}
}

func (e *Egress) fill() {
	if e.Queue == 0 {
		e.Queue = defaultQueue
	}
	if e.Shaper.Rate > 0 && e.Shaper.Burst == 0 {
		e.Shaper.Burst = max(Size(e.Shaper.Rate/8/1000), defaultMinBurst)
	}
	if e.ECN.Kmax > 0 && e.ECN.Pmax == 0 {
		e.ECN.Pmax = defaultPmax
	}
}
