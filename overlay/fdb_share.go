package overlay

import "math"

// fdbShare is what one VNI or one port has learned, and may learn. Its entries stand
// in a list, in the order in which they were noted.
type fdbShare struct {
	learned        uint32
	limit          uint32 // largest learned; 0: none
	oldest, newest uint32 // places; 0: none
}

// spent reports whether an entry has to go before another one comes.
func (s *fdbShare) spent() bool { return s.limit != 0 && s.learned >= s.limit }

func (s *fdbShare) setLimit(n int) { s.limit = uint32(min(max(n, 0), math.MaxUint32)) }

// fdbLinks is an entry's place in the list of its VNI, and in that of its port.
// They stand apart from the buckets, since a lookup does not need them.
type fdbLinks [2]struct{ prev, next uint32 }

const (
	listVNI = iota
	listPort
)

// place numbers the entries from 1.
func (f *FDB) place(b *fdbBucket, w int) uint32 {
	h := fdbHash(b.key[w])
	i := uint32(h) & f.mask
	if &f.buckets[i] != b {
		i = uint32(h>>32) & f.mask
	}
	return i*fdbWays + uint32(w) + 1
}

// at is the inverse of place.
func (f *FDB) at(place uint32) (*fdbBucket, int) {
	return &f.buckets[(place-1)/fdbWays], int(place-1) % fdbWays
}

// known reports whether d is behind a peer, or a port that the table has.
func (f *FDB) known(d Dest) bool { return d.Remote() || int(d.Port()) < len(f.ports) }

// push counts an entry, as the newest.
func (s *fdbShare) push(links []fdbLinks, list int, place uint32) {
	l := &links[place][list]
	l.prev, l.next = s.newest, 0
	if s.newest != 0 {
		links[s.newest][list].next = place
	} else {
		s.oldest = place
	}
	s.newest = place
	s.learned++
}

// pull undoes push.
func (s *fdbShare) pull(links []fdbLinks, list int, place uint32) {
	l := &links[place][list]
	if l.prev != 0 {
		links[l.prev][list].next = l.next
	} else {
		s.oldest = l.next
	}
	if l.next != 0 {
		links[l.next][list].prev = l.prev
	} else {
		s.newest = l.prev
	}
	s.learned--
}

// enlist counts a learned entry for its VNI, and for its port if it has one.
func (f *FDB) enlist(b *fdbBucket, w int) {
	place := f.place(b, w)
	f.vnis[b.key[w]>>48].push(f.links, listVNI, place)
	if d := b.dest[w]; !d.Remote() {
		f.ports[d.Port()].push(f.links, listPort, place)
	}
}

// delist undoes enlist.
func (f *FDB) delist(b *fdbBucket, w int) {
	place := f.place(b, w)
	f.vnis[b.key[w]>>48].pull(f.links, listVNI, place)
	switch d := b.dest[w]; {
	case d.Remote():
	case !f.wasFlushed(b, w):
		f.ports[d.Port()].pull(f.links, listPort, place)
	default:
		f.flushed.pull(f.links, listPort, place)
		f.endFlush()
	}
}

// renew makes an entry the newest of its shares, and puts it behind d.
func (f *FDB) renew(b *fdbBucket, w int, d Dest, tick uint32) {
	f.delist(b, w)
	b.dest[w], b.seen[w] = d, f.stamp(d, tick)
	f.enlist(b, w)
}

// evict frees the entry at a place for another one.
func (f *FDB) evict(place, tick uint32) {
	b, w := f.at(place)
	f.crowdOut(b, w, tick)
}

// crowdOut frees an entry for another one.
func (f *FDB) crowdOut(b *fdbBucket, w int, tick uint32) {
	if f.expired(b, w, tick) {
		f.aged++
	} else {
		f.evicted++
	}
	f.remove(b, w)
}

// part is what each of the VNIs that learn has of the table: all the same. own is one
// of them, also if it knows nothing yet.
func (f *FDB) part(own uint64) int {
	n := f.learning
	if f.vnis[own].learned == 0 {
		n++
	}
	return f.size / n
}

// someVNIs is how many VNIs largest looks at in one call.
const someVNIs = 64

// largest returns the VNI that has to give way to own in a full table, or own itself
// if no other one is further above its part. The largest one known may have shrunk, so
// that some others are looked at in turn.
func (f *FDB) largest(own uint64) uint64 {
	for range min(someVNIs, len(f.vnis)) {
		if f.look++; f.look == uint64(len(f.vnis)) {
			f.look = 0
		}
		f.noteLarge(f.look)
	}
	if most := f.vnis[f.most].learned; most > f.vnis[own].learned && int(most) > f.part(own) {
		return f.most
	}
	return own
}

// noteLarge keeps the largest VNI known.
func (f *FDB) noteLarge(vni uint64) {
	if f.vnis[vni].learned > f.vnis[f.most].learned {
		f.most = vni
	}
}

// yields returns the entry in key's buckets that gives way to key, or nil if none
// has to: one that has aged, or else the oldest of the VNI that is most above its part;
// at least one of key's own VNI.
func (f *FDB) yields(key uint64, tick uint32) (bucket *fdbBucket, way int) {
	own, most, age := key>>48, -1, int32(0)
	part := f.part(own)
	h := fdbHash(key)
	for _, b := range [...]*fdbBucket{f.bucket(h), f.bucket(h >> 32)} {
		for w, d := range b.dest {
			if d == DestNone || d&destStatic != 0 {
				continue
			}
			rank := max(int(f.vnis[b.key[w]>>48].learned)-part, 0)
			switch {
			case f.expired(b, w, tick):
				rank = math.MaxInt
			case rank == 0 && b.key[w]>>48 != own:
				continue
			}
			if a := int32(tick - b.seen[w]); rank > most || rank == most && a > age {
				bucket, way, most, age = b, w, rank, a
			}
		}
	}
	return bucket, way
}

// anyLearned returns the learned entry in key's buckets that was noted longest ago, or
// nil when all are static.
func (f *FDB) anyLearned(key uint64) (bucket *fdbBucket, way int) {
	h := fdbHash(key)
	for _, b := range [...]*fdbBucket{f.bucket(h), f.bucket(h >> 32)} {
		for w, d := range b.dest {
			if d != DestNone && d&destStatic == 0 && (bucket == nil || int32(b.seen[w]-bucket.seen[way]) < 0) {
				bucket, way = b, w
			}
		}
	}
	return bucket, way
}

// makeRoom frees entries until key at d takes nothing that is another's. It reports
// whether it could.
func (f *FDB) makeRoom(key uint64, d Dest, tick uint32) bool {
	v, own := &f.vnis[key>>48], key>>48
	f.drain(fdbWays, tick) // what does not count any more goes first
	f.makeRoomBehind(d, tick)
	if v.spent() {
		f.evict(v.oldest, tick)
	}
	if f.learned < f.size {
		return true
	}
	s := &f.vnis[f.largest(own)]
	if s.oldest == 0 {
		return false
	}
	f.evict(s.oldest, tick)
	return true
}

// makeRoomBehind frees an entry of the port that d is behind, if it is at its limit.
func (f *FDB) makeRoomBehind(d Dest, tick uint32) {
	if d.Remote() {
		return
	}
	if p := &f.ports[d.Port()]; p.spent() {
		f.evict(p.oldest, tick)
	}
}
