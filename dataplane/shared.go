package dataplane

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
)

// shared is what the workers of a node have in common: link meters, and on a
// leaf what leaves tell each other. All of it is made of atomic words; see
// package congestion.
type shared struct {
	params congestion.Params
	meters []*congestion.Meter // by PortID
	leaf   *leaf.Shared        // nil on a spine
	queues []queueOf           // by PortID
	came   arrivalTable        // nil on a spine
	fast   *bpf.Fast           // nil: there is no fast path
	rules  *fastRules          // of a leaf with a fast path: the classes in force
}

// queueOf is how many bytes of data wait for a port in each worker, as of when that worker
// has looked last: for schemes that tell neighbours.
type queueOf []atomic.Uint32

// look notes what waits in a worker, and returns what waits in all.
func (q queueOf) look(worker int, bytes uint64) (sum uint32) {
	q[worker].Store(uint32(min(bytes, math.MaxInt32)))
	for i := range q {
		sum += q[i].Load()
	}
	return sum
}

func newShared(cfg *Config) *shared {
	s := &shared{params: cfg.Congestion}
	for range cfg.Room { // the fast path meters beside the workers
		s.meters = append(s.meters, congestion.NewMeter(cfg.Workers+1, &s.params))
		s.queues = append(s.queues, make(queueOf, cfg.Workers))
	}
	if cfg.Role == Leaf {
		s.came = newArrivalTable()
		s.leaf = leaf.NewShared(MaxPeers, cfg.Workers, newSecret(), &s.params)
	}
	return s
}

// newSecret draws what nobody else can know.
func newSecret() (s leaf.Secret) {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program rather
	return leaf.Secret{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// Look brings what policies are shown of links up to now, once a round
// (balance.Links).
func (l *leafWorker) Look(now mono.Time) {
	if l.looked == now {
		return
	}
	l.looked = now
	for i, p := range l.uplinks {
		if p == NoPort {
			continue
		}
		e := &l.ports[p].egress
		l.brain.Local[i], l.brain.Queue[i] = e.load(now)
		l.brain.ByteTime[i], l.brain.Room[i] = e.time, uint32(min(e.limit, math.MaxUint32))
	}
}

// Glance writes what is known of links now (leaf.Glancer).
func (l *leafWorker) Glance(now mono.Time, local *[MaxPaths]uint8, queue *[MaxPaths]uint32) {
	for i, p := range l.uplinks {
		if p == NoPort {
			continue
		}
		local[i], queue[i] = l.ports[p].egress.load(now)
	}
}
