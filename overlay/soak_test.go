package overlay

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

var soak = flag.Uint64("soak", 20_000, "executions of each fuzz target without the fuzzer, for TestSoak")

// TestSoak executes the fuzz targets with bytes that are changed at random, some hundred
// times as fast as the fuzzer does, which looks at what each execution covers: it finds
// inputs that are worth having, and this tries many around each of them.
func TestSoak(t *testing.T) {
	var frames [][]byte
	for _, g := range golden {
		frames = append(frames, g.inner, encapped(g.inner, g.vni, 7, g.tos, &g.fabric), encapped6(g.inner, g.vni, 7, g.tos, &g.fabric))
	}
	frames = append(frames, kept(t)...)
	for _, target := range []struct {
		name string
		try  func(t *testing.T, b []byte, x uint32)
	}{
		{"FuzzDissect", tryDissect},
		{"FuzzDecap", func(t *testing.T, b []byte, x uint32) { tryDecap(t, b, x&3 != 0) }},
		{"FuzzVXLANDecode", func(t *testing.T, b []byte, x uint32) { tryVXLANDecode(t, b[min(len(b), outVXLAN):]) }},
		{"FuzzVLAN", func(t *testing.T, b []byte, x uint32) { tryVLAN(t, b, int(x>>16&0x3f), uint16(x)) }},
		{"FuzzDecodeLink", func(t *testing.T, b []byte, _ uint32) { tryDecodeLink(t, b) }},
		{"FuzzFinishChecksum", func(t *testing.T, b []byte, x uint32) { tryFinishChecksum(t, b, uint8(x)%40) }},
		{"FuzzHello", func(t *testing.T, b []byte, _ uint32) { tryHello(t, b[min(len(b), MaxOverhead):]) }},
		{"FuzzExactKey", func(t *testing.T, b []byte, x uint32) { tryExactKey(t, b, uint16(x)%64) }},
	} {
		t.Run(target.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			buf := make([]byte, 0, 4096)
			for n := range *soak {
				b := testenv.Mutate(rng, append(buf[:0], frames[rng.IntN(len(frames))]...), frames)
				target.try(t, b, rng.Uint32())
				if t.Failed() {
					t.Fatalf("execution %d: %s", n, hex.EncodeToString(b))
				}
			}
		})
	}
}

// kept returns the byte strings of testdata/fuzz.
func kept(t *testing.T) (all [][]byte) {
	files, err := filepath.Glob("testdata/fuzz/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if s, ok := strings.CutPrefix(strings.TrimSpace(line), "[]byte("); ok {
				b, err := strconv.Unquote(strings.TrimSuffix(s, ")"))
				if err != nil {
					t.Fatal(fmt.Errorf("%s: %w", f, err))
				}
				all = append(all, bytes.Clone([]byte(b)))
			}
		}
	}
	return all
}
