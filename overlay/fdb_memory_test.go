package overlay

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// outside is a reader of a table's memory, by the layout that the XDP programs have.
func outside(memory []byte, key uint64, tick uint32) Dest {
	const bucket = 64
	mask := uint32(len(memory)/bucket - 2)
	doubt := int32(binary.NativeEndian.Uint32(memory[4:]))
	h := fdbHash(key)
	for _, half := range []uint64{h, h >> 32} {
		b := memory[bucket*(1+int(uint32(half)&mask)):][:bucket]
		for w := range 4 {
			if binary.NativeEndian.Uint64(b[8*w:]) != key {
				continue
			}
			dest, seen := Dest(binary.NativeEndian.Uint32(b[32+4*w:])), binary.NativeEndian.Uint32(b[48+4*w:])
			limit := doubt
			if dest.Remote() {
				limit = int32(binary.NativeEndian.Uint32(memory[8:]))
			}
			if dest&destStatic == 0 && int32(tick-seen) > limit {
				return DestNone
			}
			return dest &^ destStatic
		}
	}
	return DestNone
}

// Who reads a table's memory finds what the table finds, or nothing while a flush is under
// way.
func TestFDBInMemoryIsReadFromOutside(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const size, age = 64, 10 * time.Second
	memory := make([]byte, FDBMemory(size))
	in, alone := NewFDBIn(memory, size, age, 4, 4), NewFDB(size, age, 4, 4)
	if got := int32(binary.NativeEndian.Uint32(memory)); got != in.refresh {
		t.Errorf("the memory says that entries are noted again after %d ticks, and it is %d", got, in.refresh)
	}
	key := func() FDBKey { return MakeFDBKey(uint16(rng.IntN(4)), MAC{2, 0, 0, 0, 0, byte(rng.IntN(90))}) }
	found, doubtful := 0, 0
	now := mono.Time(time.Second)
	for range 50_000 {
		now += mono.Time(rng.IntN(int(20 * time.Millisecond)))
		switch x := rng.IntN(1000); {
		case x < 300:
			k, d := key(), DestLocal(uint16(rng.IntN(4)), uint16(rng.IntN(3)))
			if rng.IntN(2) == 0 {
				d = DestRemote(uint16(rng.IntN(9)))
			}
			if a, b := in.LearnKey(k, d, now), alone.LearnKey(k, d, now); a != b {
				t.Fatalf("learned %v in memory of others, and %v without", a, b)
			}
		case x < 301:
			p := uint16(rng.IntN(4))
			in.FlushPort(p, now)
			alone.FlushPort(p, now)
		case x < 303:
			in.SetStatic(0, MAC{2, 0, 0, 0, 0, 1}, DestRemote(1))
			alone.SetStatic(0, MAC{2, 0, 0, 0, 0, 1}, DestRemote(1))
		case x < 400:
			in.Sweep(now, 2)
			alone.Sweep(now, 2)
		default:
			k := key()
			want := alone.LookupKey(k, now)
			got := outside(memory, uint64(k), fdbTick(now))
			if in.LookupKey(k, now) != want || got != want && (got != DestNone || want.Remote() || in.doubt != math.MinInt32) {
				t.Fatalf("%x is at %x, from outside at %x", k, want, got)
			}
			if got != DestNone {
				found++
			} else if want != DestNone {
				doubtful++
			}
		}
	}
	if found < 1000 || doubtful == 0 {
		t.Errorf("%d addresses found, %d in doubt: the test shows little", found, doubtful)
	}
	in.Withdraw()
	clear(memory)
	if k := key(); in.LookupKey(k, now) != alone.LookupKey(k, now) || in.Len() != alone.Len() {
		t.Error("the table has changed by its withdrawal")
	}
}
