package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// The verifier takes every program, at a cost that leaves room: it gives up at
// a million instructions.
func TestVerifier(t *testing.T) {
	testenv.NeedRoot(t)
	w, rule, leaf := newWire(t, testenv.VethOptions{}), newRule(t, RuleSize{1, 1, 1}), openFastLeaf(t)
	for _, c := range []struct {
		kind   Kind
		device int
		rule   *Rule
		six    bool
		fast   *Fast
	}{
		{Access, 0, nil, false, nil}, {Access, w.index, nil, false, nil}, {Uplink, 0, nil, false, nil}, {Uplink, 0, nil, true, nil}, {Spine, 0, nil, false, nil},
		{Access, 0, rule, false, nil}, {Access, w.index, rule, false, nil}, {Uplink, 0, rule, false, nil}, {Uplink, 0, rule, true, nil},
		{Access, 0, nil, false, leaf}, {Access, w.index, nil, false, leaf}, {Uplink, 0, nil, false, leaf}, {Spine, 0, nil, false, openFast(t)},
	} {
		kind := c.kind
		t.Run(fmt.Sprintf("%v %d %v %v %v", kind, c.device, c.rule != nil, c.six, c.fast != nil), func(t *testing.T) {
			cfg := config(kind)
			if c.six {
				cfg = config6()
			}
			cfg.Device, cfg.Rule, cfg.Fast = c.device, c.rule, c.fast
			p, err := w.load(cfg)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			defer p.Close()
			if p.ReadsTags() != (c.device != 0) {
				t.Errorf("the program reads tags: %v", p.ReadsTags())
			}
			info, err := p.prog.Info()
			if err != nil {
				t.Fatal(err)
			}
			n, ok := info.VerifiedInstructions()
			if !ok || n == 0 || n > 100_000 {
				t.Errorf("the verifier walked %d instructions (known: %v), want 1 to 100000", n, ok)
			}
			ins, err := info.Instructions()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d instructions, the verifier walked %d", info.Name, len(ins), n)
			if want := "loom_" + kind.String(); info.Name != want {
				t.Errorf("name %q, want %q: it is what operators see on the interface", info.Name, want)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   Kind
		change func(*Config)
		want   string
	}{
		{"no kind", Access, func(c *Config) { c.Kind = 0 }, "Kind(0)"},
		{"no queues", Access, func(c *Config) { c.Queues = 0 }, "queues"},
		{"too many queues", Access, func(c *Config) { c.Queues = 4097 }, "4097"},
		{"mapped VTEP", Uplink, func(c *Config) { c.VTEP = netip.MustParseAddr("::ffff:10.0.0.1") }, "::ffff:10.0.0.1"},
		{"no VTEP", Uplink, func(c *Config) { c.VTEP = netip.Addr{} }, "IPv4"},
		{"a device", Uplink, func(c *Config) { c.Device = 2 }, "access"},
		{"no port", Uplink, func(c *Config) { c.VXLANPort = 0 }, "4789"},
		{"a spine with a rule", Spine, func(c *Config) { c.Rule = new(Rule) }, "spine"},
		{"a closed port with a rule", Access, func(c *Config) { c.Rule, c.Closed = new(Rule), true }, "closed"},
		{"a rule that is closed", Access, func(c *Config) { c.Rule = new(Rule) }, "file already closed"},
		{"no routes", Spine, func(c *Config) { c.Routes = nil }, "which VXLAN"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(c.kind)
			c.change(&cfg)
			p, err := Load(cfg)
			if err == nil {
				p.Close()
				t.Fatal("loaded")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not name %q", err, c.want)
			}
		})
	}
}

// Everything that Load opens is closed by Close, and by a Load that fails at
// whichever descriptor it cannot have.
func TestNoDescriptorLeak(t *testing.T) {
	w := newWire(t, testenv.VethOptions{})
	once := func(cfg Config) error {
		p, err := Load(cfg)
		if err != nil {
			return err
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		return nil
	}
	ofDevice := config(Access)
	ofDevice.Device = w.index
	ruled, ofLink := config(Access), config(Uplink)
	ruled.Rule = newRule(t, RuleSize{1, 1, 1})
	ofLink.Rule = ruled.Rule
	w.near.Do(t, func() {
		for _, cfg := range []Config{config(Access), ofDevice, config(Uplink), config(Spine), ruled, ofLink} {
			leaks(t, cfg, once)
		}
		leaks(t, Config{}, func(Config) error {
			r, err := OpenRule(RuleSize{1, 1, 1})
			if err != nil {
				return err
			}
			return errors.Join(r.Close(), r.Close())
		})
	})
}

// leaks loads cfg with room for ever more descriptors, until it succeeds.
func leaks(t *testing.T, cfg Config, once func(Config) error) {
	t.Helper()
	if err := once(cfg); err != nil { // opens what the ebpf package keeps
		t.Fatal(err)
	}
	before := descriptors(t)
	failed := 0
	for room := 0; ; room++ {
		restore := limitDescriptors(t, room)
		err := once(cfg)
		restore()
		if after := descriptors(t); !slices.Equal(after, before) {
			t.Fatalf("%v, room for %d descriptors, error %v: open before %v, after %v", cfg.Kind, room, err, before, after)
		}
		if err == nil {
			break
		}
		failed++
	}
	if failed < 3 {
		t.Errorf("%v: Load failed only %d times: it cannot have opened its maps and program", cfg.Kind, failed)
	}
}

// descriptors returns the numbers of the open descriptors.
func descriptors(t *testing.T) []string {
	t.Helper()
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	own := strconv.Itoa(int(dir.Fd()))
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == own })
	slices.Sort(names)
	return names
}

// limitDescriptors lets the process open n more descriptors, until restore.
func limitDescriptors(t *testing.T, n int) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	// The limit is on the number itself, so count the gaps below it.
	open := descriptors(t)
	limit := 0
	for free := 0; ; limit++ {
		if slices.Contains(open, strconv.Itoa(limit)) {
			continue
		}
		if free == n {
			break
		}
		free++
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSocketsAndCounters(t *testing.T) {
	r := newRunner(t, config(Access))
	frame := eth(0x0800, ip4(6, 0, 0, tcp(1, 2)))
	r.expect(frame, "redirect")

	for range 2 { // the second time there is none to take away
		if err := r.ClearSockets(); err != nil {
			t.Fatal(err)
		}
	}
	r.expect(frame, "pass_no_socket")
	if err := r.SetSocket(0, socket(t)); err != nil {
		t.Fatal(err)
	}
	r.expect(frame, "redirect")
	// A second socket takes the place of the first.
	if err := r.SetSocket(0, socket(t)); err != nil {
		t.Fatal(err)
	}
	r.expect(frame, "redirect")

	for _, queue := range []int{-1, 1} {
		if err := r.SetSocket(queue, 0); err == nil || !strings.Contains(err.Error(), "queue") {
			t.Errorf("SetSocket(%d): error %v, want one that names the queue", queue, err)
		}
	}
	if err := r.SetSocket(0, 0); err == nil {
		t.Error("SetSocket took a descriptor that is no AF_XDP socket")
	}

	want := map[string]uint64{"redirect": 3, "fast": 0, "no_meta": 0, "pass_not_ours": 0, "pass_link_local": 0, "pass_no_socket": 1, "neighbour": 0, "drop_no_socket": 0, "drop_no_room": 0,
		"pass_group": 0, "pass_network": 0, "pass_source": 0, "pass_destination": 0, "pass_not_served": 0, "pass_refresh": 0, "pass_peer": 0, "pass_no_room": 0}
	got := r.read()
	for name, n := range want {
		if got[name] != n {
			t.Errorf("counter %s = %d, want %d", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("counters %v, want %v", got, want)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Counters(); err == nil {
		t.Error("Counters works after Close")
	}
	if err := r.SetSocket(0, 0); err == nil {
		t.Error("SetSocket works after Close")
	}
	if err := r.ClearSockets(); err == nil {
		t.Error("ClearSockets works after Close")
	}
}
