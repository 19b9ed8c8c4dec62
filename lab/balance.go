package lab

import (
	"strconv"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
)

// classes are the traffic classes of a leaf: those of VNIs that it has no
// host of would be refused there, and match nothing.
func (l *Lab) classes(leaf int) (out []vocab.Class) {
	vnis := map[uint32]bool{0: true}
	for _, vni := range l.Topo.VNIsOf(leaf) {
		vnis[vni] = true
	}
	for i, c := range l.File.Classes {
		if !vnis[c.Match.VNI] {
			continue
		}
		if c.Name == "" {
			c.Name = "class " + strconv.Itoa(i)
		}
		out = append(out, c)
	}
	return out
}

// SchemeReport is what a scheme decided on one leaf since its daemon was
// started. Flowlets are zero for schemes without.
type SchemeReport struct {
	Scheme    string `json:"scheme"`
	Decisions uint64 `json:"decisions"`
	Started   uint64 `json:"flowlets_started"`
	Moved     uint64 `json:"flowlets_moved"`
	Kept      uint64 `json:"flowlets_kept"`
	Expired   uint64 `json:"flowlets_expired"`
}

// addScheme adds a worker's counters to those of the scheme.
func addScheme(sums []SchemeReport, scheme string, s balance.Stats) []SchemeReport {
	at := -1
	for i := range sums {
		if sums[i].Scheme == scheme {
			at = i
		}
	}
	if at < 0 {
		sums = append(sums, SchemeReport{Scheme: scheme})
		at = len(sums) - 1
	}
	r := &sums[at]
	r.Decisions += s.Decisions
	r.Started += s.Flowlets.Started
	r.Moved += s.Flowlets.Moved
	r.Kept += s.Flowlets.Kept
	r.Expired += s.Flowlets.Expired
	return sums
}
