package vocab

import (
	"time"

	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// Link is one direction of a link: what stands at the port that sends.
type Link struct {
	// Rate is the port's speed. Default: in experiments it is required, in the lab
	// there is no limit.
	Rate   units.Rate `yaml:"rate,omitempty"`
	Egress `yaml:",inline"`
}

// Egress is what a frame meets at the port that it leaves by.
type Egress struct {
	// Queue is the limit of the data queue. Default: 512KiB (leafd, spined), 256KB
	// (the lab), what the switch's buffer has (experiments).
	Queue units.Size `yaml:"queue,omitempty"`
	// Delay holds every frame back for a fixed time: a link's latency. Default: 0,
	// in experiments 1us.
	Delay time.Duration `yaml:"delay,omitempty"`
	// ECN marks frames while the queue is long. Default: none are marked.
	ECN ECN `yaml:"ecn,omitempty"`
}

// OldKeys are the names that a queue had before.
func (Egress) OldKeys() map[string]string { return map[string]string{"buffer": "queue"} }

// ECN marks frames as DCQCN's switches do: none below kmin queued, every one
// from kmax, in between with a probability that rises to pmax.
type ECN struct {
	// Kmin is the queue length below which no frame is marked.
	Kmin units.Size `yaml:"kmin,omitempty"`
	// Kmax is the queue length from which every frame is marked; 0 or absent:
	// no marking.
	Kmax units.Size `yaml:"kmax,omitempty"`
	// Pmax is the marking probability just below Kmax, in (0, 1].
	// Default: 0.2 when kmax is given.
	Pmax float64 `yaml:"pmax,omitempty"`
}

// defaultPmax is the probability of an ECN that gives none.
const defaultPmax = 0.2

// Complete fills in the probability.
func (e *ECN) Complete() {
	if e.Kmax > 0 && e.Pmax == 0 {
		e.Pmax = defaultPmax
	}
}

// Check returns what is wrong with the thresholds at a path.
func (e *ECN) Check(at string) (errs yamlfile.Errors) {
	switch {
	case e.Kmax == 0 && (e.Kmin > 0 || e.Pmax != 0):
		errs.Errorf(at, "ECN marking without kmax; add kmax, as in kmax: 400KB")
	case e.Kmin > e.Kmax:
		errs.Errorf(at+".kmin", "kmin %v is above kmax %v; marking starts at kmin and is certain from kmax: lower kmin", e.Kmin, e.Kmax)
	case e.Kmax > 1<<30:
		errs.Errorf(at+".kmax", "kmax %v is above any queue; use less than the queue's limit", e.Kmax)
	}
	errs.ErrorIf(!(e.Pmax >= 0 && e.Pmax <= 1), at+".pmax", "pmax %v is outside (0, 1]; pmax is a probability, as in 0.2", e.Pmax)
	return errs
}

// Links are the links between every leaf and every spine.
type Links struct {
	// Parallel is the number of links of one pair of a leaf and a spine. Default: 1.
	Parallel int `yaml:"parallel,omitempty"`
	Link     `yaml:",inline"`
}

// Override changes one link. What is left out stays as it is.
type Override struct {
	// Link is the link's name, such as L0-S1.0: leaf 0, spine 1, parallel link 0.
	Link string `yaml:"link"`
	// Direction is up (leaf to spine), down or both. Default: both.
	Direction string `yaml:"direction,omitempty"`
	// Rate is the direction's rate.
	Rate *units.Rate `yaml:"rate,omitempty"`
	// Delay is the direction's delay.
	Delay *time.Duration `yaml:"delay,omitempty"`
	// Queue is the limit of the direction's queue.
	Queue *units.Size `yaml:"queue,omitempty"`
	// ECN is the direction's marking.
	ECN *ECN `yaml:"ecn,omitempty"`
}

// OldKeys are the names that keys had before.
func (Override) OldKeys() map[string]string { return Egress{}.OldKeys() }

// Directions are what an override can have.
var Directions = []string{"up", "down", "both"}

// Apply changes the directions of a link that o is about.
func (o *Override) Apply(up, down *Link) {
	for i, l := range []*Link{up, down} {
		if o.Direction != Directions[1-i] { // the other one's
			set(&l.Rate, o.Rate)
			set(&l.Delay, o.Delay)
			set(&l.Queue, o.Queue)
			set(&l.ECN, o.ECN)
		}
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Fault takes one link down or up at a time after the run's start.
type Fault struct {
	// At is the time after the start.
	At time.Duration `yaml:"at"`
	// Fail is the name of the link that goes down. Give this or restore.
	Fail string `yaml:"fail,omitempty"`
	// Restore is the name of the link that comes up again. Give this or fail.
	Restore string `yaml:"restore,omitempty"`
}
