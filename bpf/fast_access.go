package bpf

import "sync/atomic"

// accessTables are a leaf's tables of the fast path of hosts' frames (bpf/fast_access.h).
type accessTables struct {
	classes  []FastClasses
	rows     []FastRow
	tunnels  []FastTunnels
	best     []uint64
	told     []loomFastTold
	flowlets []uint64
	went     []FastWent
	wrapped  []loomFastTraffic
	switched []loomFastTraffic
	hopped   []loomFastTraffic
	begun    []FastBegun
}

// FastClasses are a leaf's traffic classes in a copy of the tables, as fast_access.h lays them
// out.
type FastClasses = loomFastClasses

// FastRow is a balance.Row in a copy of the tables, as fast_access.h lays it out.
type FastRow = loomFastRow

// FastTunnels are the paths to a peer in a copy of the tables, as fast_access.h lays them out.
type FastTunnels = loomFastTunnels

// FastWent is what one CPU has sent to a peer, as fast_access.h lays it out: see [Fast.Went].
type FastWent = loomFastWent

// FastBegun is what one CPU has decided for a class, as fast_access.h lays it out: see
// [Fast.Begun].
type FastBegun = loomFastBegun

// Numbers that fast_access.h has.
const (
	FastClassCount = 16
	FastTables     = 8       // of flowlets, of each queue
	FastFlowlets   = 1 << 16 // entries of such a table
	FastAnyNetwork = -1      // a class's

	fastPaths = 16
	fastHops  = 1024

	// Who decides about the frames of a class, enum fast_decider.
	FastByWorker  = 0
	FastByFlow    = 1
	FastByFlowlet = 2
)

func (s *FastSize) accessEntries(cpus int) map[string]int {
	return map[string]int{
		"fast_classes": FastCopies, "fast_rows": FastCopies * FastClassCount * fastPeers, "fast_tunnels": FastCopies * fastPeers, "fast_best": FastClassCount * fastPeers,
		"fast_told": fastPeers, "fast_flowlets": s.Queues * FastTables * FastFlowlets, "fast_went": cpus * fastPeers, "fast_wrapped": cpus * fastNetworks, "fast_switched": cpus * fastNetworks,
		"fast_hopped": cpus * fastHops, "fast_begun": cpus * FastClassCount,
	}
}

func (f *Fast) mapAccess() (err error) {
	a := &f.access
	if a.classes, err = mapped[FastClasses](f, "fast_classes"); err != nil {
		return err
	}
	if a.rows, err = mapped[FastRow](f, "fast_rows"); err != nil {
		return err
	}
	if a.tunnels, err = mapped[FastTunnels](f, "fast_tunnels"); err != nil {
		return err
	}
	if a.best, err = mapped[uint64](f, "fast_best"); err != nil {
		return err
	}
	if a.told, err = mapped[loomFastTold](f, "fast_told"); err != nil {
		return err
	}
	if a.flowlets, err = mapped[uint64](f, "fast_flowlets"); err != nil {
		return err
	}
	if a.went, err = mapped[FastWent](f, "fast_went"); err != nil {
		return err
	}
	if a.wrapped, err = mapped[loomFastTraffic](f, "fast_wrapped"); err != nil {
		return err
	}
	if a.switched, err = mapped[loomFastTraffic](f, "fast_switched"); err != nil {
		return err
	}
	if a.hopped, err = mapped[loomFastTraffic](f, "fast_hopped"); err != nil {
		return err
	}
	a.begun, err = mapped[FastBegun](f, "fast_begun")
	return err
}

// AccessCopy returns what is for hosts' frames in a copy of the tables, as [Fast.Copy] does
// with the rest. Rows are by class and peer, peers being the faster: see [FastRowOf]. Tunnels
// are by peer.
func (f *Fast) AccessCopy(i int) (classes *FastClasses, rows []FastRow, tunnels []FastTunnels) {
	const n = FastClassCount * fastPeers
	return &f.access.classes[i], f.access.rows[i*n:][:n], f.access.tunnels[i*fastPeers:][:fastPeers]
}

// FastRowOf returns the index of the row of a class and a peer.
func FastRowOf(class, peer int) int { return class*fastPeers + peer }

// Flowlets returns the memory of one of the tables of flowlets of a queue's worker, of
// [FastFlowlets] words.
func (f *Fast) Flowlets(queue, table int) []uint64 {
	return f.access.flowlets[(queue*FastTables+table)*FastFlowlets:][:FastFlowlets:FastFlowlets]
}

// SetBest says on which uplinks flowlets of a class to a peer begin, and on which of them a
// flow stays, as bits by LBTag.
func (f *Fast) SetBest(class, peer int, uplinks, keep uint16) {
	atomic.StoreUint64(&f.access.best[FastRowOf(class, peer)], uint64(keep)<<16|uint64(uplinks))
}

// SetFresh says until when, in ns of user space's clock, what SetBest said counts.
func (f *Fast) SetFresh(until uint64) { atomic.StoreUint64(&f.ctl.Fresh, until) }

// Tell says what a peer is told: whether it reads the fabric's fields, and the feedback for it,
// bytes of [FastFeedback] of which there are at most 16.
func (f *Fast) Tell(peer int, capable bool, feedback []uint8) {
	t := &f.access.told[peer]
	var words [2]uint64
	for i, b := range feedback {
		words[i/8] |= uint64(b) << (i % 8 * 8)
	}
	// A program that reads meanwhile takes each byte for itself, and none that was not there.
	count := uint32(len(feedback))
	if count < atomic.LoadUint32(&t.Count) {
		atomic.StoreUint32(&t.Count, count)
	}
	atomic.StoreUint64(&t.Feedback[0], words[0])
	atomic.StoreUint64(&t.Feedback[1], words[1])
	atomic.StoreUint32(&t.Count, count)
	is := uint32(0)
	if capable {
		is = 1
	}
	atomic.StoreUint32(&t.Capable, is)
}

// FastFeedback returns the byte of a metric for a peer's tag.
func FastFeedback(tag, metric uint8) uint8 { return tag<<3 | metric&7 }

// Went returns what a CPU has sent to a peer. The programs write it meanwhile.
func (f *Fast) Went(cpu, peer int) *FastWent { return &f.access.went[cpu*fastPeers+peer] }

// SentTo returns how many frames with the fabric's fields have gone to a peer by an own
// uplink's tag.
func (f *Fast) SentTo(peer uint16, tag uint8) (n uint32) {
	for cpu := range f.cpus {
		n += atomic.LoadUint32(&f.Went(cpu, int(peer)).By[tag])
	}
	return n
}

// Wrapped returns the tenants' frames of a network, and their bytes, that went into tunnels.
func (f *Fast) Wrapped(network int) (frames, bytes uint64) {
	return f.traffic(f.access.wrapped, fastNetworks, network)
}

// Switched returns the frames of a network, and their bytes, that went from one port of the leaf to
// another.
func (f *Fast) Switched(network int) (frames, bytes uint64) {
	return f.traffic(f.access.switched, fastNetworks, network)
}

// Hopped returns the frames, and their bytes, that went to a next hop.
func (f *Fast) Hopped(hop int) (frames, bytes uint64) {
	return f.traffic(f.access.hopped, fastHops, hop)
}

// Begun returns what has been decided for a class since the start, whatever its scheme was.
func (f *Fast) Begun(class int) (sum FastBegun) {
	for cpu := range f.cpus {
		b := &f.access.begun[cpu*FastClassCount+class]
		sum.Decided += atomic.LoadUint64(&b.Decided)
		sum.Started += atomic.LoadUint64(&b.Started)
		sum.Moved += atomic.LoadUint64(&b.Moved)
		sum.Kept += atomic.LoadUint64(&b.Kept)
		sum.Expired += atomic.LoadUint64(&b.Expired)
	}
	return sum
}

// traffic adds up rows of all CPUs, of which each has a part of a size.
func (f *Fast) traffic(rows []loomFastTraffic, part, at int) (frames, bytes uint64) {
	for cpu := range f.cpus {
		frames += atomic.LoadUint64(&rows[cpu*part+at].Frames)
		bytes += atomic.LoadUint64(&rows[cpu*part+at].Bytes)
	}
	return frames, bytes
}
