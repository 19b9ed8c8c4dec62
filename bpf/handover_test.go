package bpf

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// mustAdopt takes p over as another process would.
func mustAdopt(t *testing.T, p *Program, cfg Config) *Program {
	t.Helper()
	h, files, err := p.Handle()
	if err != nil {
		t.Fatal(err)
	}
	if shares := cfg.Kind == Spine; h.Fits(&p.cfg) == shares {
		t.Errorf("that a handle fits its own configuration is %v, though it shares tables: %v", !shares, shares)
	}
	q, err := Adopt(cfg, h, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// Programs that do anything differently have other fingerprints.
func TestFingerprint(t *testing.T) {
	base := config(Uplink)
	seen := map[string]int{base.Fingerprint(): -1}
	for i, change := range []func(*Config){
		func(c *Config) { c.Kind = Access },
		func(c *Config) { c.VTEP = c.VTEP.Next() },
		func(c *Config) { c.VXLANPort++ },
		func(c *Config) { c.Seed++ },
		func(c *Config) { c.Closed = true },
		func(c *Config) { c.Queues++ },
		func(c *Config) { c.Device++ },
	} {
		c := base
		change(&c)
		if j, twice := seen[c.Fingerprint()]; twice {
			t.Errorf("changes %d and %d have one fingerprint", i, j)
		}
		seen[c.Fingerprint()] = i
	}
}

// A program that was taken over stays attached when its first owner closes it, counts
// on, has one owner for others, and goes with the second.
func TestAdopt(t *testing.T) {
	for name, cfg := range map[string]Config{"open": config(Access), "closed": closed(), "spine": config(Spine)} {
		t.Run(name, func(t *testing.T) {
			w := newClosedWire(t)
			third := mustLoad(t, cfg)
			before := descriptors(t)
			p, err := Load(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.attach(p, Auto); err != nil {
				t.Fatal(err)
			}
			id := w.attached()
			w.received(10)
			q := mustAdopt(t, p, cfg)
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if w.attached() != id || !q.Is(id) || q.mode != Native {
				t.Fatalf("program %d is attached, before it was %d; mode %v", w.attached(), id, q.mode)
			}
			w.received(10)
			counts, err := q.Counters()
			sum := uint64(0)
			for _, n := range counts {
				sum += n
			}
			if err != nil || sum != 22 {
				t.Errorf("%v, %v: want 22 in all", counts, err)
			}
			if _, err := w.attach(third, Native); err == nil {
				t.Error("a third program was attached beside it")
			}
			w.near.Do(t, func() { err = q.Detach() })
			if err != nil {
				t.Fatal(err)
			}
			if w.attached() != 0 {
				t.Error("it is attached after Detach")
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			if after := descriptors(t); !slices.Equal(after, before) {
				t.Errorf("descriptors before %v, after %v", before, after)
			}
		})
	}
}

// Another program takes the place of one that was taken over, in one step: the interface
// is never without, and nothing of a host reaches the kernel from a closed port.
func TestReplace(t *testing.T) {
	for name, cfg := range map[string]Config{"open": config(Uplink), "closed": closed()} {
		t.Run(name, func(t *testing.T) {
			w := newClosedWire(t)
			p := mustLoad(t, cfg)
			if _, err := w.attach(p, Auto); err != nil {
				t.Fatal(err)
			}
			id := w.attached()
			q := mustAdopt(t, p, cfg)
			if err := p.abandon(); err != nil {
				t.Fatal(err)
			}
			stop, done, slipped := make(chan struct{}), make(chan struct{}), 0
			go func() {
				defer close(done)
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = unix.Write(w.tx, fromHost)
					}
				}
			}()
			other := cfg
			other.Seed++
			for range 20 {
				n := mustLoad(t, other)
				w.near.Do(t, func() {
					if err := n.Replace(q); err != nil {
						t.Fatal(err)
					}
				})
				if now := w.attached(); now == id || now == 0 || !n.Is(now) {
					t.Errorf("program %d is attached after %d", now, id)
				} else {
					id = now
				}
				if _, err := q.Counters(); err != nil {
					t.Errorf("what the replaced program has counted: %v", err)
				}
				if err := q.Close(); err != nil || w.attached() != id {
					t.Errorf("closing the replaced program: %v; %d is attached, want %d", err, w.attached(), id)
				}
				q = n
			}
			close(stop)
			<-done
			buf := make([]byte, 2048)
			for {
				n, err := unix.Read(w.rx, buf)
				if err != nil {
					break
				}
				if slices.Equal(buf[:n], fromHost) {
					slipped++
				}
			}
			if cfg.Closed && slipped > 0 {
				t.Errorf("the kernel got %d of a host's frames", slipped)
			}
		})
	}
}

func TestReplaceRefusesAnotherKindOfAttachment(t *testing.T) {
	w := newWire(t, testenv.VethOptions{})
	p := mustLoad(t, config(Access))
	if _, err := w.attach(p, Auto); err != nil {
		t.Fatal(err)
	}
	id := w.attached()
	if err := mustLoad(t, closed()).Replace(p); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("error %v", err)
	}
	if w.attached() != id {
		t.Error("the program went all the same")
	}
}

// What is not a program is refused, and all of it closed.
func TestAdoptRefuses(t *testing.T) {
	testenv.NeedRoot(t)
	w := newWire(t, testenv.VethOptions{})
	p := mustLoad(t, config(Access))
	if _, _, err := p.Handle(); err == nil {
		t.Error("a program that is not attached was handed over")
	}
	if _, err := w.attach(p, Auto); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for want, change := range map[string]func(*Handle, *[]*os.File){
		"descriptors came":  func(h *Handle, f *[]*os.File) { (*f)[0].Close(); *f = (*f)[1:] },
		"are not a program": func(h *Handle, f *[]*os.File) { (*f)[1].Close(); *f, h.Parts = (*f)[:1], h.Parts[:1] },
		"unknown part 99":   func(h *Handle, f *[]*os.File) { h.Parts[0] = 99 },
	} {
		h, files, err := p.Handle()
		if err != nil {
			t.Fatal(err)
		}
		all := files
		change(&h, &files)
		if q, err := Adopt(config(Access), h, files); q != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		for _, f := range all {
			f.Close()
		}
	}
	if after := descriptors(t); !slices.Equal(before, after) {
		t.Errorf("descriptors before %v, after %v", before, after)
	}
}
