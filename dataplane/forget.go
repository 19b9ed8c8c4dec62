package dataplane

// forgetAtOnce is how many addresses of networks that are gone are forgotten in one sweep.
const forgetAtOnce = 4 * sweepBuckets

// departed is a network that is gone, and how many of the addresses that were learned in
// it are still in the FDB. Its number rests meanwhile; if the network comes back, it learns
// them anew.
type departed struct {
	vni  uint16
	left int
}

// depart notes the networks of an old view whose place is empty, or another one's, in a new
// one.
func (l *leafWorker) depart(old, v *view) {
	for i := range old.tables.VNIs {
		was := old.tables.VNIs[i].VNI
		if was == 0 || i < len(v.tables.VNIs) && v.tables.VNIs[i].VNI == was {
			continue
		}
		if n := l.fdb.Learned(uint16(i)); n > 0 {
			l.departed = append(l.departed, departed{uint16(i), n})
		}
	}
}

// forget frees some addresses of networks that are gone.
func (l *leafWorker) forget() {
	for n := forgetAtOnce; n > 0 && len(l.departed) > 0; {
		d := &l.departed[0]
		freed := l.fdb.Forget(d.vni, min(n, d.left))
		n, d.left = n-freed, d.left-freed
		if d.left == 0 || freed == 0 {
			l.departed = l.departed[:copy(l.departed, l.departed[1:])]
		}
	}
}
