package overlay

import (
	"iter"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Dest is where an address lives: behind a peer, or behind a local port with or
// without a VLAN tag. One word keeps an FDB entry small.
type Dest uint32

// DestNone is the zero Dest; it stands for an unknown address.
const DestNone Dest = 0

// A Dest is kind(2) static(1) 0 then, by kind, peer(16) or VLAN(12) port(16).
const (
	destRemote    Dest = 1 << 31
	destLocal     Dest = 1 << 30
	destStatic    Dest = 1 << 29 // inside the FDB only
	destVLANShift      = 16
)

// DestRemote returns the Dest of an address behind a peer.
func DestRemote(peer uint16) Dest { return destRemote | Dest(peer) }

// DestLocal returns the Dest of an address behind a local port. vlan is the
// 12-bit identifier of the tag that frames carry there, or 0 for none.
func DestLocal(port, vlan uint16) Dest {
	return destLocal | Dest(vlan&vidMask)<<destVLANShift | Dest(port)
}

// Remote reports whether the address lives behind a peer.
func (d Dest) Remote() bool { return d&destRemote != 0 }

// Peer returns the peer of a remote Dest.
func (d Dest) Peer() uint16 { return uint16(d) }

// Port returns the port of a local Dest.
func (d Dest) Port() uint16 { return uint16(d) }

// VLAN returns the VLAN identifier of a local Dest, 0 for none.
func (d Dest) VLAN() uint16 { return uint16(d>>destVLANShift) & vidMask }

// Learned is the outcome of [FDB.LearnKey].
type Learned uint8

// The outcomes.
const (
	LearnedKnown     Learned = iota // the entry was fresh
	LearnedRefreshed                // the entry was older than a quarter of the ageing time; the other workers need to know
	LearnedNew                      // the address was unknown or had aged
	LearnedMoved                    // the address lived elsewhere; the last frame wins
	LearnedHeld                     // not moved: the address moved too often, and is held where it is
	LearnedFull                     // not learned: the table or the bucket is full of what other VNIs have a right to
	LearnedStatic                   // not learned: a static entry says otherwise
	LearnedRefused                  // not learned: group or zero address, DestNone, or no such VNI or port
)

// fdbWays entries share a bucket, which is one cache line.
const fdbWays = 4

// fdbBucket holds its entries column by column. A free entry is all zero; no
// entry has a zero key or a zero dest.
type fdbBucket struct {
	key  [fdbWays]uint64 // VNI index(16) . MAC(48)
	dest [fdbWays]Dest
	seen [fdbWays]uint32 // ticks
}

// fdbTickShift converts nanoseconds to ticks of 2^24 ns, 16.8 ms. 32 bits of ticks
// wrap after 834 days, and tell past from future over half of that.
const fdbTickShift = 24

func fdbTick(t mono.Time) uint32 { return uint32(t >> fdbTickShift) }

// fdbVNI counts the entries of one VNI.
type fdbVNI struct {
	fdbShare
	entries uint32 // learned and static
}

// FDB is a worker's table of MAC addresses, per VNI. It is owned by one worker;
// not safe for concurrent use.
//
// The table is flat and free of pointers. An address has two possible buckets of
// four entries, and goes to the emptier one. There are two slots for each address
// that the table may learn: in a full table about one address in fifty thousand
// finds both buckets full.
//
// LearnKey writes the time an entry was last seen only when that is older than a
// quarter of the ageing time, so that a steady flow does not dirty its cache
// line. An address is forgotten between three quarters and the whole of the
// ageing time (and a few ticks) after its last frame. Lookup does not find aged
// entries; [FDB.Sweep] takes them out of the counts.
//
// A VNI or a port at its limit forgets the address that it noted longest ago for
// each new one. In a full table, or if both of an address's buckets are full, the VNI
// that is most above its part does: all that learn have the same part. So whoever
// sends from many addresses takes none from a VNI or a port within its share.
type FDB struct {
	buckets  []fdbBucket
	mask     uint32
	age      int32 // ticks; an entry older than that is aged
	refresh  int32 // ticks; an entry older than that is noted again
	doubt    int32 // ticks; an entry older than that may have expired
	size     int   // learned entries that are allowed
	learned  int
	static   int
	aged     int // taken over by Learn since the last Sweep
	cursor   uint32
	evicted  uint64
	vnis     []fdbVNI
	learning int    // VNIs that have learned something
	most     uint64 // the largest VNI known, which may have shrunk
	look     uint64 // the VNI that was compared with it last
	ports    []fdbPort
	flushed  fdbShare   // of addresses behind ports that were flushed since; its list is the ports'
	links    []fdbLinks // by place, from 1
	moves    fdbMoves
	head     *fdbHead // nil: nobody else reads the table
}

// NewFDB returns an empty table for up to size learned addresses, rounded up to
// a power of two, in VNI indices below vnis and on local ports below ports. The table
// forgets a learned address that was not seen for age. It never forgets if age is not
// positive. Longer ageing times than a year count as a year.
func NewFDB(size int, age time.Duration, vnis, ports int) *FDB {
	return newFDB(make([]fdbBucket, fdbBuckets(size)), size, age, vnis, ports)
}

// fdbSize returns how many addresses a table may learn that is to learn size.
func fdbSize(size int) int { return 1 << bits.Len(uint(max(size, 2*fdbWays)-1)) }

// fdbBuckets returns how many buckets such a table has, a power of two.
func fdbBuckets(size int) int { return 2 * fdbSize(size) / fdbWays }

// newFDB is NewFDB, with buckets that are empty.
func newFDB(buckets []fdbBucket, size int, age time.Duration, vnis, ports int) *FDB {
	n := len(buckets)
	f := &FDB{
		buckets: buckets,
		mask:    uint32(n - 1),
		age:     math.MaxInt32,
		size:    fdbSize(size),
		vnis:    make([]fdbVNI, vnis),
		ports:   make([]fdbPort, ports),
		links:   make([]fdbLinks, n*fdbWays+1),
	}
	if age > 0 {
		age = min(age, 365*24*time.Hour)
		f.age = int32((age + 1<<fdbTickShift - 1) >> fdbTickShift)
	}
	f.refresh, f.doubt = f.age/4, f.age
	return f
}

// FDBKey is the table's key: VNI index(16) . MAC(48). [Ethernet.DstKey] and
// [Ethernet.SrcKey] read it from a frame without an array in between.
type FDBKey uint64

const fdbGroup = 1 << 40 // the group bit of the address in a key

// MakeFDBKey returns the key of an address in the VNI with index vni.
func MakeFDBKey(vni uint16, mac MAC) FDBKey { return FDBKey(vni)<<48 | FDBKey(mac.Uint64()) }

// Group reports whether the address is a group address.
func (k FDBKey) Group() bool { return k&fdbGroup != 0 }

// Unicast reports whether the address is neither a group address nor zero.
func (k FDBKey) Unicast() bool { return k&fdbGroup == 0 && k<<16 != 0 }

// LinkLocal reports whether the address is one of 01-80-C2-00-00-00 to 0F, which
// belong to a link and are never forwarded (IEEE 802.1Q §8.6.3).
func (k FDBKey) LinkLocal() bool { return k&(1<<48-0x10) == 0x0180_c200_0000 }

// fdbHash folds the 128-bit product of key and a constant, so that both halves
// depend on all of VNI and MAC and not on each other. Some odd constants do badly:
// TestFDBFill shows how evenly this one spreads addresses in sequence, at strides,
// and the same addresses in many VNIs.
func fdbHash(key uint64) uint64 {
	hi, lo := bits.Mul64(key, 0xa0761d6478bd642f)
	return hi ^ lo
}

func (f *FDB) bucket(h uint64) *fdbBucket { return &f.buckets[uint32(h)&f.mask] }

// way returns the entry of the bucket that holds key, or -1.
func (b *fdbBucket) way(key uint64) int {
	// This form compiles to conditional moves. A branch would be mispredicted,
	// since the entry within a bucket is random.
	w := -1
	if b.key[0] == key {
		w = 0
	}
	if b.key[1] == key {
		w = 1
	}
	if b.key[2] == key {
		w = 2
	}
	if b.key[3] == key {
		w = 3
	}
	return w
}

// find returns the bucket and entry that hold key, or a nil bucket.
func (f *FDB) find(key uint64) (*fdbBucket, int) {
	h := fdbHash(key)
	b := f.bucket(h)
	w := b.way(key)
	if w < 0 {
		b = f.bucket(h >> 32)
		if w = b.way(key); w < 0 {
			return nil, 0
		}
	}
	return b, w
}

// doubtful reports whether entry w may have expired at tick now.
func (f *FDB) doubtful(b *fdbBucket, w int, now uint32) bool { return int32(now-b.seen[w]) > f.doubt }

// expired reports whether entry w has aged at tick now, or was flushed. Time that went
// back ages nothing. Ask doubtful first where it matters.
func (f *FDB) expired(b *fdbBucket, w int, now uint32) bool {
	return b.dest[w]&destStatic == 0 && (int32(now-b.seen[w]) > f.age || f.wasFlushed(b, w))
}

// Lookup returns where mac lives in the VNI with index vni. It returns DestNone
// for an address that is unknown or has aged.
func (f *FDB) Lookup(vni uint16, mac MAC, now mono.Time) Dest {
	return f.LookupKey(MakeFDBKey(vni, mac), now)
}

// LookupKey is [FDB.Lookup] by key.
func (f *FDB) LookupKey(k FDBKey, now mono.Time) Dest {
	// This is find, written out: a call would cost a third of the lookup.
	key := uint64(k)
	h := fdbHash(key)
	b := &f.buckets[uint32(h)&f.mask]
	w := b.way(key)
	if w < 0 {
		b = &f.buckets[uint32(h>>32)&f.mask]
		if w = b.way(key); w < 0 {
			return DestNone
		}
	}
	if tick := fdbTick(now); f.doubtful(b, w&(fdbWays-1), tick) && f.expired(b, w&(fdbWays-1), tick) {
		return DestNone
	}
	return b.dest[w&(fdbWays-1)] &^ destStatic
}

// LearnKey notes that a frame was seen at d whose source address and VNI are k's.
func (f *FDB) LearnKey(k FDBKey, d Dest, now mono.Time) Learned {
	if !k.Unicast() || d == DestNone || int(k>>48) >= len(f.vnis) {
		return LearnedRefused
	}
	key, tick := uint64(k), fdbTick(now)
	b, w := f.find(key)
	if b == nil {
		return f.insert(key, d, tick)
	}
	switch {
	case b.dest[w]&destStatic != 0:
		if b.dest[w]&^destStatic != d {
			return LearnedStatic
		}
		return LearnedKnown
	case f.doubtful(b, w, tick) && f.expired(b, w, tick):
		f.remove(b, w)
		f.aged++
		return f.insert(key, d, tick)
	case b.dest[w] != d:
		return f.move(b, w, d, tick)
	case int32(tick-b.seen[w]) > f.refresh:
		f.renew(b, w, d, tick)
		return LearnedRefreshed
	}
	return LearnedKnown
}

// move takes note that an address lives elsewhere now.
func (f *FDB) move(b *fdbBucket, w int, d Dest, tick uint32) Learned {
	if !f.known(d) {
		return LearnedRefused
	}
	if !f.mayMove(b.key[w], b.dest[w], d, tick) {
		return LearnedHeld
	}
	if old := b.dest[w]; old.Remote() || old.Port() != d.Port() {
		f.makeRoomBehind(d, tick)
	}
	f.renew(b, w, d, tick)
	return LearnedMoved
}

// insert adds a learned entry that is not in the table.
func (f *FDB) insert(key uint64, d Dest, tick uint32) Learned {
	if !f.known(d) {
		return LearnedRefused
	}
	if !f.makeRoom(key, d, tick) {
		return LearnedFull
	}
	b, w := f.room(key)
	if b == nil {
		if b, w = f.yields(key, tick); b == nil {
			return LearnedFull
		}
		f.crowdOut(b, w, tick)
	}
	f.add(b, w, key, d, tick)
	return LearnedNew
}

// add fills a free entry with a learned address.
func (f *FDB) add(b *fdbBucket, w int, key uint64, d Dest, tick uint32) {
	b.key[w], b.dest[w], b.seen[w] = key, d, f.stamp(d, tick)
	f.enlist(b, w)
	v := &f.vnis[key>>48]
	v.entries++
	f.learned++
	if v.learned == 1 {
		f.learning++
	}
	f.noteLarge(key >> 48)
}

// room returns a free entry for key in the emptier of its buckets, or nil.
func (f *FDB) room(key uint64) (*fdbBucket, int) {
	h := fdbHash(key)
	a, b := f.bucket(h), f.bucket(h>>32)
	na, wa := a.free()
	nb, wb := b.free()
	if nb > na {
		return b, wb
	}
	if na == 0 {
		return nil, 0
	}
	return a, wa
}

// free returns how many entries are free, and one of them.
func (b *fdbBucket) free() (n, way int) {
	for w, d := range b.dest {
		if d == DestNone {
			n, way = n+1, w
		}
	}
	return n, way
}

// remove frees an entry.
func (f *FDB) remove(b *fdbBucket, w int) {
	v := &f.vnis[b.key[w]>>48]
	v.entries--
	if b.dest[w]&destStatic != 0 {
		f.static--
	} else {
		f.delist(b, w)
		f.learned--
		if v.learned == 0 {
			f.learning--
		}
	}
	b.key[w], b.dest[w], b.seen[w] = 0, DestNone, 0
}

// setDoubt says how old an entry may be that counts without another look.
func (f *FDB) setDoubt(ticks int32) {
	f.doubt = ticks
	if f.head != nil {
		atomic.StoreInt32(&f.head.doubt, ticks)
	}
}

// SetStatic puts mac at d, where it neither ages nor moves. It replaces a learned
// entry, and counts towards no limit. It returns false if mac is a group or zero
// address, if d is DestNone, if there is no such VNI, or if all eight entries that
// could hold the address are static.
func (f *FDB) SetStatic(vni uint16, mac MAC, d Dest) bool {
	if mac.IsGroup() || mac.IsZero() || d == DestNone || int(vni) >= len(f.vnis) {
		return false
	}
	key := uint64(MakeFDBKey(vni, mac))
	b, w := f.find(key)
	if b != nil {
		f.remove(b, w)
	} else if b, w = f.room(key); b == nil {
		// A learned entry makes room, since it can be learned again.
		if b, w = f.anyLearned(key); b == nil {
			return false
		}
		f.remove(b, w)
	}
	b.key[w], b.dest[w] = key, d|destStatic
	f.vnis[vni].entries++
	f.static++
	return true
}

// DeleteStatic forgets a static entry and reports whether there was one.
func (f *FDB) DeleteStatic(vni uint16, mac MAC) bool {
	if mac.IsZero() {
		return false // a zero key would find a free entry
	}
	b, w := f.find(uint64(MakeFDBKey(vni, mac)))
	if b == nil || b.dest[w]&destStatic == 0 {
		return false
	}
	f.remove(b, w)
	return true
}

// SetLimit lets the VNI learn at most n addresses. There is no limit if n is not
// positive. Addresses above a lowered limit stay until they age or others are
// learned. Aged entries count until [FDB.Sweep] passes them.
func (f *FDB) SetLimit(vni uint16, n int) {
	if int(vni) < len(f.vnis) {
		f.vnis[vni].setLimit(n)
	}
}

// SetPortLimit lets a local port learn at most n addresses, in all its VNIs
// together, as [FDB.SetLimit] does for a VNI.
func (f *FDB) SetPortLimit(port uint16, n int) {
	if int(port) < len(f.ports) {
		f.ports[port].setLimit(n)
	}
}

// Evicted returns how many learned addresses had to give way to others so far.
func (f *FDB) Evicted() uint64 { return f.evicted }

// Count returns the number of the VNI's entries. It includes static entries, and
// aged and flushed ones that Sweep has yet to free.
func (f *FDB) Count(vni uint16) int {
	if int(vni) >= len(f.vnis) {
		return 0
	}
	return int(f.vnis[vni].entries)
}

// Len returns the number of the table's entries, counted as by [FDB.Count].
func (f *FDB) Len() int { return f.learned + f.static }

// Sweep frees the aged entries of the next buckets (of four entries) in turn, and as
// many that were flushed. It returns the number of entries that aged or were flushed
// since the last call; these include the ones that LearnKey replaced.
func (f *FDB) Sweep(now mono.Time, buckets int) (aged int) {
	tick := fdbTick(now)
	f.drain(fdbWays*buckets, tick)
	for range min(buckets, len(f.buckets)) {
		b := &f.buckets[f.cursor&f.mask]
		f.cursor++
		for w, d := range b.dest {
			if d != DestNone && f.expired(b, w, tick) {
				f.remove(b, w)
				aged++
			}
		}
	}
	aged += f.aged
	f.aged = 0
	return aged
}

// FDBEntry is one address, for inspection.
type FDBEntry struct {
	VNI    uint16 // index
	MAC    MAC
	Dest   Dest
	Static bool
	Age    time.Duration // since it was last noted, in steps of some 17 ms; 0 if static
}

// Buckets returns the number of buckets, for [FDB.Some].
func (f *FDB) Buckets() int { return len(f.buckets) }

// Some yields the entries in a range of buckets that Lookup would find, in no
// particular order. The table must not change during a call. An entry that moves
// between two calls may be seen twice or not at all.
func (f *FDB) Some(now mono.Time, from, to int) iter.Seq[FDBEntry] {
	return func(yield func(FDBEntry) bool) {
		tick := fdbTick(now)
		for i := max(from, 0); i < min(to, len(f.buckets)); i++ {
			b := &f.buckets[i]
			for w, d := range b.dest {
				if d == DestNone || f.expired(b, w, tick) {
					continue
				}
				e := FDBEntry{VNI: uint16(b.key[w] >> 48), MAC: MACFromUint64(b.key[w]), Dest: d &^ destStatic, Static: d&destStatic != 0}
				if !e.Static {
					e.Age = time.Duration(max(int32(tick-b.seen[w]), 0)) << fdbTickShift
				}
				if !yield(e) {
					return
				}
			}
		}
	}
}
