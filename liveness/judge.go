package liveness

import (
	"math/bits"

	"github.com/loomfabric/loom/internal/mono"
)

// Judge decides about the paths of all peers, for the worker that sends the HELLOs: about
// those that lead here, from what comes by them, and about those that lead to the peers,
// from what these say.
type Judge struct {
	table   *Table
	traffic *Traffic
	peers   []judgedPeer
	paths   []judged // by peer*MaxTags + the peer's tag
}

// judgedPeer is one peer's rounds.
type judgedPeer struct {
	boot    uint32
	round   uint32 // the last one that was judged
	large   uint32 // the last large one of which has been heard
	window  uint32 // round that the present window began with
	present uint16
	report  Report
	said    Report // what the peer says of the paths to it
}

// judged is one path from a peer.
type judged struct {
	state   State
	since   uint32 // round from which what it brings counts
	proof   uint32 // rounds in a row that it has to bring to be trusted again
	trusted uint32 // round from which it was trusted again; 0: never given up
	narrow  uint8  // large rounds in a row of which nothing came
	came    uint32 // packets up to round alive
	alive   uint32 // the last one in which a packet came
	window
}

// window is a path's packets over some rounds. Rounds in which a packet met a busy link do
// not count, nor do those before them: what they miss may have had no room, and what a
// HELLO overtook in a queue comes with the next one.
type window struct {
	hot      uint32 // packets that met a busy link, as of the last round
	flying   int32  // packets sent and not come, and
	counted  uint32 // sent, as of the last round
	owed     int32  // how these two grew in the last round, which may yet not count
	owedSent uint32
	cool     bool // owed and owedSent are meant
	missing  int32
	offered  uint32 // sums over rounds that count: of flying and of counted

	began  bool   // sent and before are meant
	fresh  bool   // least is meant
	bad    uint8  // windows in a row that were too lossy
	sent   uint32 // at its beginning
	before int32  // least of the window before
	least  int32  // the fewest packets that were sent and had not come
	loss   uint16
}

// NewJudge returns the judge over a table. traffic is its worker's.
func NewJudge(t *Table, traffic *Traffic) *Judge {
	return &Judge{table: t, traffic: traffic, peers: make([]judgedPeer, len(t.peers)), paths: make([]judged, len(t.from))}
}

// Begin begins a round of the leaf's own HELLOs and returns its number.
func (j *Judge) Begin() uint32 { return j.table.round.Add(1) }

// From judges the paths from a peer by what came since the last call, and returns what
// the peer is to be told.
func (j *Judge) From(p uint16) Report {
	s, t := &j.peers[p], &j.table.peers[p]
	newest := t.newest.Load()
	round, large := uint32(newest>>32), uint32(newest)
	present := uint16(t.present.Load())
	if boot := t.boot.Load(); boot != s.boot || round < s.round {
		*s = judgedPeer{boot: boot, window: round}
		clear(j.rows(p))
	}
	if round == 0 || round == s.round {
		return s.report // nothing came: the peer is gone, or has no time
	}
	rows := j.rows(p)
	for m := present &^ s.present; m != 0; m &= m - 1 {
		rows[bits.TrailingZeros16(m)] = judged{state: Alive, since: round - 1, proof: ProofRounds}
	}
	for m := s.present &^ present; m != 0; m &= m - 1 {
		rows[bits.TrailingZeros16(m)] = judged{} // the peer has no such path any more
	}
	s.present = present
	steady := j.steady(p, round)
	for m := present; m != 0; m &= m - 1 {
		tag := bits.TrailingZeros16(m)
		x := &rows[tag]
		if came := j.traffic.Came(p, uint8(tag)); came != x.came {
			x.came, x.alive = came, round
		}
		j.look(x, &j.table.from[int(p)*MaxTags+tag], s, round, large, j.traffic.Hot(p, uint8(tag)), steady)
	}
	if round-s.window >= WindowRounds {
		s.window = round
		j.weigh(rows, round)
	}
	s.round, s.large = round, max(large, s.large)
	s.report = Report{}
	for m := present; m != 0; m &= m - 1 {
		bit := m & -m
		switch rows[bits.TrailingZeros16(m)].state {
		case Silent:
			s.report.Silent |= bit
		case Lossy:
			s.report.Lossy |= bit
		case Narrow:
			s.report.Narrow |= bit
		}
	}
	return s.report
}

// Loss returns the share of a peer's packets by its uplink tag that was lost of late, of
// 65535.
func (j *Judge) Loss(p uint16, tag uint8) uint16 { return j.rows(p)[tag].loss }

func (j *Judge) rows(p uint16) []judged { return j.paths[int(p)*MaxTags:][:MaxTags] }

// steady reports whether a path of the peer has brought all of the last rounds, as
// witness that another one might have.
func (j *Judge) steady(p uint16, round uint32) bool {
	for i := range MaxTags {
		run := j.table.from[int(p)*MaxTags+i].run.Load()
		if uint32(run>>32) == round && uint32(run) >= MissedRounds {
			return true
		}
	}
	return false
}

// look judges one path by its HELLOs.
func (j *Judge) look(x *judged, h *heard, s *judgedPeer, round, large, hot uint32, steady bool) {
	run := h.run.Load()
	last, row := uint32(run>>32), uint32(run)
	if x.state != Alive {
		// Rounds from before the path was given up prove nothing.
		if last+1 >= round && last > x.since && min(row, last-x.since) >= x.proof && h.large.Load() > x.since {
			*x = judged{state: Alive, since: round, proof: x.proof, trusted: round, came: x.came}
		}
		return
	}
	if int32(round-max(last, x.since, x.alive)) >= MissedRounds && steady {
		x.giveUp(Silent, round)
		return
	}
	if large > s.large && s.large > x.since { // the one before has had its time
		switch {
		case h.large.Load() >= s.large:
			x.narrow = 0
		case last > s.large:
			x.narrow++
		}
		if x.narrow >= missedLarge {
			x.giveUp(Narrow, round)
			return
		}
	}
	if last == round {
		counts := h.counts.Load()
		x.count(uint32(counts>>32), uint32(counts), hot)
	}
}

// count takes a round's packets into the window.
func (x *window) count(sent, came, hot uint32) {
	flying := int32(sent - came)
	if hot != x.hot {
		x.cool = false
	} else {
		if x.cool {
			x.missing, x.offered = x.missing+x.owed, x.offered+x.owedSent
		}
		x.owed, x.owedSent, x.cool = flying-x.flying, sent-x.counted, true
	}
	x.hot, x.flying, x.counted = hot, flying, sent
	if !x.fresh || x.missing-x.least < 0 {
		x.least, x.fresh = x.missing, true
	}
}

// giveUp takes a path for one that does not deliver. If it was trusted again not long
// ago, it has to prove itself for longer.
func (x *judged) giveUp(why State, round uint32) {
	proof := uint32(ProofRounds)
	if x.trusted != 0 && round-x.trusted < relapseRounds+x.proof {
		proof = min(2*x.proof, maxProof)
	}
	*x = judged{state: why, since: round, proof: proof, trusted: x.trusted, came: x.came, window: window{loss: x.loss}}
	if why == Silent {
		x.loss = 65535
	}
}

// weigh ends a window of a peer's paths: it compares what each one lost.
func (j *Judge) weigh(rows []judged, round uint32) {
	var sent, lost [MaxTags]uint32
	var allSent, allLost uint32
	for i := range rows {
		x := &rows[i]
		if x.state != Alive || !x.fresh {
			continue
		}
		if x.began {
			sent[i], lost[i] = x.offered-x.sent, uint32(max(x.least-x.before, 0))
			allSent, allLost = allSent+sent[i], allLost+lost[i]
		}
		x.began, x.sent, x.before, x.fresh = true, x.offered, x.least, false
	}
	for i := range rows {
		x := &rows[i]
		if x.state != Alive || sent[i] < leastSent {
			continue
		}
		x.loss = uint16(min(uint64(lost[i])*65535/uint64(sent[i]), 65535))
		restSent, restLost := uint64(allSent-sent[i]), uint64(allLost-lost[i])
		compared := restSent >= leastSent
		switch {
		case lost[i]*lossyShare < sent[i],
			compared && uint64(lost[i])*restSent <= lossyFactor*restLost*uint64(sent[i]):
			x.bad = 0
			continue
		}
		if x.bad++; x.bad >= alone || compared && x.bad >= lossyWindows {
			x.giveUp(Lossy, round)
		}
	}
}

// To takes in force at now what a peer says of the paths to it. used are the leaf's own
// tags that lead there.
func (j *Judge) To(p uint16, used uint16, now mono.Time) {
	t := j.table
	r, _ := t.report(p, now)
	dead := r.keepOff(used)
	old := uint16(t.dead[p].Load())
	if said := &j.peers[p].said; *said != r || dead != old {
		*said = r
		defer t.reports.Add(1)
	}
	if dead == old {
		return
	}
	for m := dead &^ old; m != 0; m &= m - 1 {
		t.to[int(p)*MaxTags+bits.TrailingZeros16(m)].given.Add(1)
	}
	t.dead[p].Store(uint32(dead))
	t.changes.Add(1)
}
