package leaf

import "math/rand/v2"

// Marker decides on ECN marks as the switches of DCQCN do (Zhu et al., SIGCOMM 2015
// §3.1: RED on the instantaneous queue). A packet is judged when it leaves the queue,
// by what it leaves behind: so do the switches of DCQCN's and ConWeave's simulations,
// and the sender hears of a queue without waiting for it first. The zero value never
// marks.
type Marker struct {
	Kmin, Kmax uint64 // bytes; Kmax 0: never mark
	Pmax       float64
	RNG        *rand.Rand
}

// On reports whether anything is ever marked.
func (m *Marker) On() bool { return m.Kmax != 0 }

// Chance returns the probability that [Marker.Hit] is true.
func (m *Marker) Chance(queued uint64) float64 {
	switch {
	case m.Kmax == 0 || queued <= m.Kmin:
		return 0
	case queued > m.Kmax:
		return 1
	}
	return m.Pmax * float64(queued-m.Kmin) / float64(m.Kmax-m.Kmin)
}

// Hit reports whether a packet at a queue of so many bytes is to be marked: never up
// to Kmin, always above Kmax, between them with a probability that rises to Pmax.
func (m *Marker) Hit(queued uint64) bool {
	switch {
	case m.Kmax == 0 || queued <= m.Kmin:
		return false
	case queued > m.Kmax:
		return true
	}
	return m.RNG.Float64()*float64(m.Kmax-m.Kmin) < m.Pmax*float64(queued-m.Kmin)
}
