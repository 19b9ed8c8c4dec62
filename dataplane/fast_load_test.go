package dataplane

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/loomfabric/loom/bpf"
)

// A driver that takes none of many frames is left alone, however slowly they come; one that
// takes some is not.
func TestDriverThatRefusesAll(t *testing.T) {
	var r refused
	for i, c := range []struct {
		lost, went uint64
		want       bool
	}{{3, 0, false}, {7, 0, false}, {8, 0, true}, {100, 0, true}, {100, 1, false}, {107, 1, false}, {200, 50, false}, {203, 50, false}, {208, 50, true}} {
		if got := r.all(c.lost, c.went); got != c.want {
			t.Errorf("look %d, %d lost, %d went: %v", i, c.lost, c.went, got)
		}
	}
}

// Where the kernel does not take the program of the fast path, a port has the one without, if
// the fast path need not be; and the node says so.
func TestPortWithoutItsFastProgram(t *testing.T) {
	s := newSite(t, 1)
	var log strings.Builder
	s.cfg.FastPath = FastAuto
	s.leaf.Do(t, func() {
		n, err := Open(s.cfg, slog.New(slog.NewTextHandler(&log, nil)))
		must(t, err)
		defer func() { must(t, n.Close()) }()
		n.load = func(cfg bpf.Config) (*bpf.Program, error) {
			if cfg.Fast != nil {
				return nil, errors.New("the verifier is too old")
			}
			return bpf.Load(cfg)
		}
		d := n.devices[0]
		must(t, n.closeDevice(d))
		must(t, n.openDevice(d, 0))
		if why := n.fast.ports[d.id].in; !strings.Contains(why, "the verifier is too old") {
			t.Errorf("the port's way in is slow for %q", why)
		}
		if !strings.Contains(log.String(), "the verifier is too old") {
			t.Errorf("the log does not say why:\n%s", log.String())
		}
		n.cfg.FastPath = FastOn
		must(t, n.closeDevice(d))
		if err := n.openDevice(d, 0); err == nil || !strings.Contains(err.Error(), "the verifier is too old") {
			t.Errorf("a port whose fast path has to be opens without it: %v", err)
		}
	})
}
