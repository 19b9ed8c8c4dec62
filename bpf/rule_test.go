package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

func newRule(t testing.TB, size RuleSize) *Rule {
	t.Helper()
	testenv.NeedRoot(t)
	r, err := OpenRule(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// ruled are the programs of an access port and an uplink with one rule, and its model.
type ruled struct {
	*ruleModel
	rule         *Rule
	access, link *runner
	socket       int
}

const rulePort = 3

func newRuled(t testing.TB, size RuleSize) *ruled { return newRuledAt(t, size, ownVTEP) }

func newRuledAt(t testing.TB, size RuleSize, vtep netip.Addr) *ruled {
	t.Helper()
	r := &ruled{rule: newRule(t, size), socket: socket(t), ruleModel: &ruleModel{
		port: rulePort, tables: RuleTables{Networks: make(map[overlay.VNI]uint16), Peers: make(map[netip.Addr]bool)},
		addresses: make(map[overlay.FDBKey]overlay.Dest), shown: make(map[overlay.FDBKey]bool),
	}}
	for kind, to := range map[Kind]**runner{Access: &r.access, Uplink: &r.link} {
		cfg := config(kind)
		cfg.Rule, cfg.Port = r.rule, rulePort
		if kind == Uplink {
			cfg.VTEP = vtep
		}
		*to = newRunner(t, cfg)
	}
	return r
}

// publish makes networks, peers and VLANs of the programs those of the model.
func (r *ruled) publish(t testing.TB) {
	t.Helper()
	if err := errors.Join(r.access.RetainVLANs(&r.vlans), r.rule.Retain(&r.tables), r.rule.Set(&r.tables), r.access.SetVLANs(&r.vlans)); err != nil {
		t.Fatal(err)
	}
}

// put sets an address in the rule and in the model.
func (r *ruled) put(t testing.TB, key overlay.FDBKey, at overlay.Dest) {
	t.Helper()
	if n, err := r.rule.SetAddresses([]overlay.FDBKey{key}, []overlay.Dest{at}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r.addresses[key] = at
	delete(r.shown, key)
}

func (r *ruled) drop(t testing.TB, key overlay.FDBKey) {
	t.Helper()
	delete(r.addresses, key)
	if err := r.rule.DeleteAddresses([]overlay.FDBKey{key}); err != nil || r.rule.Len() != len(r.addresses) {
		t.Fatalf("%d addresses, want %d; error %v", r.rule.Len(), len(r.addresses), err)
	}
}

// serve gives the queue of both programs a socket, or none.
func (r *ruled) serve(t testing.TB, yes bool) {
	t.Helper()
	r.noSocket = !yes
	for _, p := range []*runner{r.access, r.link} {
		if err := p.sockets.Delete(uint32(0)); err != nil && !yes {
			t.Fatal(err)
		}
		if yes {
			if err := p.SetSocket(0, r.socket); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// check runs a frame by one of the programs and by the model.
func (r *ruled) check(t testing.TB, kind Kind, frame []byte) (verdict string) {
	t.Helper()
	p, want, out := r.access, "", frame
	if kind == Access {
		want = r.ruleModel.access(frame)
	} else {
		p = r.link
		want, out = r.ruleModel.uplink(frame)
	}
	p.t = t
	before := p.read()
	action, got, m, meta := p.pass(frame)
	name := p.counted(before)
	var described overlay.Meta
	if kind == Access && want == "redirect" {
		overlay.Dissect(frame, seed, &described)
	} else if want == "redirect" {
		if inner, start := describes(frame); inner != nil {
			overlay.Dissect(inner, seed, &described)
			described.Inner = uint8(start)
		} else {
			want = "no_meta"
		}
	}
	wantAction := uint32(xdpPass)
	switch want {
	case "redirect", "no_meta", "neighbour":
		wantAction = xdpRedirect
	case "drop_no_socket":
		wantAction = xdpDrop
	}
	if name != want || action != wantAction || meta != (want == "redirect") || m != described {
		t.Errorf("%v: verdict %s, action %d, metadata %v %+v\nwant %s, action %d, %+v\nframe %x", kind, name, action, meta, m, want, wantAction, described, frame)
	}
	if len(out) == len(frame) && !bytes.Equal(out, frame) { // cleared
		out = slices.Clone(out)
		if l4 := 14 + int(frame[14]&15)*4; frame[l4+6] != 0 || frame[l4+7] != 0 {
			// A checksum that was right is right; another one is as wrong as it was.
			sum := binary.BigEndian.Uint16(got[l4+6:])
			if n := int(binary.BigEndian.Uint16(frame[l4+4:])); n >= 8 && n <= len(frame)-l4 && udpChecksum(frame) == binary.BigEndian.Uint16(frame[l4+6:]) {
				if right := udpChecksum(out); sum != right {
					t.Errorf("checksum %04x, want %04x\nframe %x\n      %x", sum, right, frame, got)
				}
			} else if sum == 0 {
				t.Errorf("the checksum became none\nframe %x\n      %x", frame, got)
			}
			copy(out[l4+6:l4+8], got[l4+6:])
		}
	}
	if len(out) < len(frame) && len(got) == len(out) { // without its shim: the IP checksum, likewise
		h := slices.Clone(frame[14:34])
		if checksum(h); !bytes.Equal(h, frame[14:34]) {
			copy(out[24:26], got[24:26])
		}
	}
	if !bytes.Equal(got, out) {
		t.Errorf("%v, %s: frame\n%x came out as\n%x, want\n%x", kind, want, frame, got, out)
	}
	return want
}

var (
	ruleHost  = []byte{2, 0, 0, 0, 1, 1} // on the port, VLAN 20
	ruleNear  = []byte{2, 0, 0, 0, 1, 2} // on another port, without a tag
	ruleFar   = []byte{2, 0, 0, 0, 2, 1} // behind a peer
	ruleLost  = []byte{2, 0, 0, 0, 2, 2} // behind a peer that no path leads to
	ruleShut  = []byte{2, 0, 0, 0, 1, 3} // on a port that is not open
	ruleNone  = []byte{2, 0, 0, 0, 3, 1} // nowhere
	rulePeer  = netip.MustParseAddr("192.168.0.1")
	ruleVNI   = overlay.VNI(100)
	broadcast = []byte{255, 255, 255, 255, 255, 255}
	ruleTCP   = ip4(6, 0, 0, tcp(1000, 80))
)

// ruleFixture is a leaf with one network, 7, on VLAN 20 of the port and without a tag on
// another one.
func ruleFixture(t testing.TB, size RuleSize) *ruled {
	return ruleFixtureAt(t, size, ownVTEP, rulePeer)
}

func ruleFixtureAt(t testing.TB, size RuleSize, vtep, peer netip.Addr) *ruled {
	r := newRuledAt(t, size, vtep)
	r.vlans[20] = VLAN{Network: 8, Refresh: 10 * time.Minute}
	r.tables.Networks[ruleVNI], r.tables.Peers[peer] = 7, true
	r.tables.Ports[rulePort], r.tables.Ports[rulePort+1], r.tables.Ways[5] = true, true, true
	r.publish(t)
	r.put(t, modelKey(7, ruleHost), overlay.DestLocal(rulePort, 20))
	r.put(t, modelKey(7, ruleNear), overlay.DestLocal(rulePort+1, 0))
	r.put(t, modelKey(7, ruleFar), overlay.DestRemote(5))
	r.put(t, modelKey(7, ruleLost), overlay.DestRemote(6))
	r.put(t, modelKey(7, ruleShut), overlay.DestLocal(rulePort+2, 0))
	return r
}

// between is an IPv4 frame from one address to another, with tags in front.
func between(src, dst []byte, tags ...[]byte) []byte {
	return join(dst, src, join(tags...), be(0x0800), ruleTCP)
}

func vlanTag(tpid, tci uint16) []byte { return join(be(tpid), be(tci)) }

// Every row of the rule for access ports.
func TestRuleOfAccessPorts(t *testing.T) {
	r := ruleFixture(t, RuleSize{100, 10, 10})
	v20 := vlanTag(0x8100, 20)
	if got := r.check(t, Access, between(ruleHost, ruleFar, v20)); got != "pass_refresh" {
		t.Errorf("the first frame of a source: %s, want pass_refresh", got)
	}
	for _, c := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"to a peer", between(ruleHost, ruleFar, v20), "redirect"},
		{"with priority", between(ruleHost, ruleFar, vlanTag(0x8100, 5<<13|20)), "redirect"},
		{"to another port", between(ruleHost, ruleNear, v20), "redirect"},
		{"to itself", between(ruleHost, ruleHost, v20), "pass_destination"},
		{"to nobody", between(ruleHost, ruleNone, v20), "pass_destination"},
		{"to a peer without a path", between(ruleHost, ruleLost, v20), "pass_not_served"},
		{"to a port that is not open", between(ruleHost, ruleShut, v20), "pass_not_served"},
		{"from nobody", between(ruleNone, ruleFar, v20), "pass_source"},
		{"from another port's host", between(ruleNear, ruleFar, v20), "pass_source"},
		{"from a peer's host", between(ruleFar, ruleNear, v20), "pass_source"},
		{"from a group", between(broadcast, ruleFar, v20), "pass_source"},
		{"without a tag", between(ruleHost, ruleFar), "pass_network"},
		{"on another VLAN", between(ruleHost, ruleFar, vlanTag(0x8100, 21)), "pass_network"},
		{"with a service tag", between(ruleHost, ruleFar, vlanTag(0x88a8, 20)), "pass_network"},
		{"with two tags", between(ruleHost, ruleFar, v20, v20), "pass_network"},
		{"to all", between(ruleHost, broadcast, v20), "pass_group"},
		{"to a group", between(ruleHost, []byte{1, 0, 0x5e, 0, 0, 1}, v20), "pass_group"},
		{"PVST+", between(ruleHost, []byte{1, 0, 0x0c, 0xcc, 0xcc, 0xcd}, v20), "pass_group"},
		{"LLDP", with(eth(0x88cc, make([]byte, 46)), 0, 1, 0x80, 0xc2, 0, 0, 0x0e), "pass_link_local"},
		{"ours by EtherType", with(eth(overlay.EtherTypeLocal, make([]byte, 46)), 0, ruleNone...), "pass_network"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := r.check(t, Access, c.frame); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	r.serve(t, false)
	if got := r.check(t, Access, between(ruleHost, ruleFar, v20)); got != "pass_no_socket" {
		t.Errorf("without a socket: %s", got)
	}
}

// inVXLAN is a tenant's frame from a VTEP to the leaf.
func inVXLAN(from netip.Addr, vni uint32, reserved [3]byte, shim, inner []byte) []byte {
	f := outer(ownVTEP, 0, reserved, shim, inner)
	src := from.As4()
	copy(f[26:], src[:])
	binary.BigEndian.PutUint32(f[46:], vni<<8)
	checksum(f[14:34])
	return f
}

// ruleRow is a row of the rule for uplinks.
type ruleRow struct {
	name       string
	frame      []byte
	want, gone string // without a socket
}

func ruleRows() []ruleRow {
	plain, capable := [3]byte{}, [3]byte{0xab, 0xc4, 0x71}
	in := between(ruleFar, ruleHost)
	withSum := func(f []byte) []byte { return with(f, 40, be(udpChecksum(f))...) }
	return []ruleRow{
		{"to a host", inVXLAN(rulePeer, 100, plain, nil, in), "redirect", "pass_no_socket"},
		{"to a host, by Loom", inVXLAN(rulePeer, 100, capable, nil, in), "redirect", "pass_no_socket"},
		{"with a path and a scheme", with(with(inVXLAN(rulePeer, 100, capable, nil, in), 49, 0x37), 42, 0x18), "redirect", "pass_no_socket"},
		{"with a checksum", withSum(inVXLAN(rulePeer, 100, capable, nil, in)), "redirect", "pass_no_socket"},
		{"to the other port", inVXLAN(rulePeer, 100, capable, nil, between(ruleFar, ruleNear)), "redirect", "pass_no_socket"},
		{"to a port that is not open", withSum(inVXLAN(rulePeer, 100, capable, nil, between(ruleFar, ruleShut))), "pass_not_served", ""},
		{"to a peer's host", withSum(inVXLAN(rulePeer, 100, capable, nil, between(ruleFar, ruleFar))), "pass_destination", ""},
		{"to nobody", inVXLAN(rulePeer, 100, plain, nil, between(ruleFar, ruleNone)), "pass_destination", ""},
		{"to nobody, by Loom", inVXLAN(rulePeer, 100, capable, nil, between(ruleFar, ruleNone)), "pass_destination", ""},
		{"to all", withSum(inVXLAN(rulePeer, 100, capable, nil, between(ruleFar, broadcast))), "pass_group", ""},
		{"with a tag inside", inVXLAN(rulePeer, 100, capable, nil, between(ruleFar, ruleHost, vlanTag(0x8100, 20))), "pass_destination", ""},
		{"without an inner frame", inVXLAN(rulePeer, 100, capable, nil, in[:13]), "pass_destination", ""},
		{"of another network", inVXLAN(rulePeer, 101, capable, nil, in), "pass_network", ""},
		{"from nobody's VTEP", withSum(inVXLAN(otherVTEP, 100, capable, nil, in)), "pass_peer", ""},
		{"to another VTEP", outer(otherVTEP, 0, capable, nil, in), "pass_not_ours", ""},
		{"with VXLAN-GBP", with(inVXLAN(rulePeer, 100, capable, nil, in), 42, 0x88), "pass_network", ""},
		{"without the VNI's flag", with(inVXLAN(rulePeer, 100, plain, nil, in), 42, 0), "pass_network", ""},
		{"with reserved bits of others", inVXLAN(rulePeer, 100, [3]byte{0, 0, 2}, nil, in), "pass_network", ""},
		{"with a shim", inVXLAN(rulePeer, 100, fabricShim, shim, in), "redirect", "pass_no_socket"},
		{"with a shim, and a checksum", withSum(inVXLAN(rulePeer, 100, fabricShim, shim, in)), "redirect", "pass_no_socket"},
		{"with a shim, from nobody's VTEP", inVXLAN(otherVTEP, 100, fabricShim, shim, in), "redirect", "pass_no_socket"},
		{"with a shim, to nobody", inVXLAN(rulePeer, 100, fabricShim, shim, between(ruleFar, ruleNone)), "redirect", "pass_no_socket"},
		{"HELLO", inVXLAN(rulePeer, 0, [3]byte{0, 2, 0x85}, shim, make([]byte, 60)), "redirect", "drop_no_socket"},
		{"NOTIFY", inVXLAN(otherVTEP, 100, [3]byte{0, 2, 1}, nil, in), "redirect", "drop_no_socket"},
		{"a neighbour's message", eth(overlay.EtherTypeLocal, make([]byte, 46)), "neighbour", "pass_no_socket"},
	}
}

// Every row of the rule for uplinks, and what the kernel gets.
func TestRuleOfUplinks(t *testing.T) {
	r := ruleFixture(t, RuleSize{100, 10, 10})
	for _, c := range ruleRows() {
		t.Run(c.name, func(t *testing.T) {
			if got := r.check(t, Uplink, c.frame); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if c.gone == "" {
				c.gone = c.want
			}
			r.serve(t, false)
			defer r.serve(t, true)
			if got := r.check(t, Uplink, c.frame); got != c.gone {
				t.Errorf("without a socket: %s, want %s", got, c.gone)
			}
		})
	}
}

// A checksum that becomes 0 is sent as its complement: 0 says that there is none (RFC 768).
func TestRuleChecksumOfZero(t *testing.T) {
	r := ruleFixture(t, RuleSize{10, 10, 10})
	inside := func(word uint16) []byte { return join(between(ruleFar, ruleNone), be(word)) }
	cleared := udpChecksum(inVXLAN(rulePeer, 100, [3]byte{}, nil, inside(0)))
	f := inVXLAN(rulePeer, 100, [3]byte{0, 0, 1}, nil, inside(cleared))
	f = with(f, 40, be(udpChecksum(f))...)
	r.check(t, Uplink, f)
	if _, got, _, _ := r.link.pass(f); binary.BigEndian.Uint16(got[40:]) != 0xffff {
		t.Errorf("the checksum became %x", got[40:42])
	}
}

// What the kernel gets of a frame with a shim is the frame that was put in, in VXLAN.
func TestRuleTakesShimOut(t *testing.T) {
	r := ruleFixture(t, RuleSize{10, 10, 10})
	r.serve(t, false)
	in := between(ruleFar, ruleHost)
	_, out, _, _ := r.link.pass(inVXLAN(rulePeer, 100, fabricShim, shim, in))
	var d overlay.Decapped
	if reason := overlay.Decap(out, vxlanPort, &d); reason != 0 || d.Fabric.Capable || d.VNI != 100 || !bytes.Equal(out[d.Inner:d.End], in) {
		t.Errorf("decapsulated: %v, %+v\n%x", reason, d, out)
	}
}

// 10 000 frames, by tables that change meanwhile, go where the model says.
func TestRuleAgainstModel(t *testing.T) {
	rng := generator(t)
	r := newRuled(t, RuleSize{100, 10, 10})
	pick := func(of ...uint16) uint16 { return of[rng.IntN(len(of))] }
	mac := func() []byte {
		switch m := byte(rng.IntN(10)); m {
		case 0:
			return broadcast
		case 1:
			return []byte{1, 0x80, 0xc2, 0, 0, byte(rng.IntN(20))}
		default:
			return []byte{2, 0, 0, 0, 9, m}
		}
	}
	vteps := []netip.Addr{rulePeer, otherVTEP, netip.MustParseAddr("10.0.0.7")}
	change := func() {
		key := modelKey(pick(1, 2, 3), mac())
		switch rng.IntN(5) {
		case 0:
			r.drop(t, key)
		case 1:
			r.put(t, key, overlay.DestRemote(pick(1, 2)))
		case 2, 3:
			r.put(t, key, overlay.DestLocal(pick(rulePort, rulePort, 4), pick(0, 20, 30)))
		case 4:
			r.vlans[pick(0, 20, 30)] = VLAN{Network: pick(0, 2, 3, 4), Refresh: 10 * time.Minute}
			x := &r.tables
			delete(x.Networks, overlay.VNI(pick(100, 200)))
			x.Networks[overlay.VNI(pick(100, 200, 300))] = pick(1, 2, 3)
			delete(x.Peers, vteps[rng.IntN(3)])
			x.Peers[vteps[rng.IntN(3)]] = true
			x.Ports[rulePort], x.Ports[4], x.Ways[1], x.Ways[2] = rng.IntN(4) > 0, rng.IntN(4) > 0, rng.IntN(4) > 0, rng.IntN(4) > 0
			r.publish(t)
		}
	}
	for range 300 {
		change()
	}
	frame := func() (Kind, []byte) {
		var tags [][]byte
		for rng.IntN(3) == 0 {
			tags = append(tags, vlanTag(pick(0x8100, 0x8100, 0x8100, 0x88a8), pick(0, 20, 30, 40)))
		}
		if rng.IntN(2) == 0 {
			return Access, between(mac(), mac(), tags...)
		}
		if rng.IntN(4) > 0 {
			tags = nil
		}
		reserved, s := [3]byte{}, []byte(nil)
		if rng.IntN(2) == 0 {
			binary.BigEndian.PutUint16(reserved[:], uint16(rng.Uint32())&0xfffc|pick(0, 0, 0, 2))
			reserved[2] = byte(rng.Uint32())&0x7a | byte(pick(0, 1, 1, 1))
			if rng.IntN(4) == 0 {
				reserved[2] |= 4
				s = shim
			}
		}
		f := inVXLAN(vteps[rng.IntN(3)], uint32(pick(100, 200, 300)), reserved, s, between(mac(), mac(), tags...))
		if reserved[2]&1 != 0 {
			f[49], f[42] = byte(rng.Uint32()), byte(pick(8, 8, 0x18, 0x48, 0x88))
		}
		if rng.IntN(3) == 0 {
			copy(f[40:], be(udpChecksum(f)))
		}
		return Uplink, f
	}
	met := make(map[string]int)
	for i := range 10_000 {
		if i%2000 == 1000 {
			r.serve(t, i%4000 == 1000)
		}
		if rng.IntN(20) == 0 {
			change()
		}
		kind, f := frame()
		if rng.IntN(4) == 0 {
			f = mutate(rng, f)
		}
		met[kind.String()+" "+r.check(t, kind, f)]++
		if t.Failed() {
			return
		}
	}
	t.Log(met)
	for _, row := range []string{
		"access pass_link_local", "access pass_group", "access pass_network", "access pass_source", "access pass_destination", "access pass_not_served", "access pass_refresh", "access pass_no_socket", "access redirect",
		"uplink pass_not_ours", "uplink pass_peer", "uplink pass_group", "uplink pass_network", "uplink pass_destination", "uplink pass_not_served", "uplink pass_no_socket", "uplink redirect", "uplink drop_no_socket",
	} {
		if met[row] == 0 {
			t.Errorf("no frame met %s", row)
		}
	}
}

// FuzzRule hands any bytes to both programs and to the model.
func FuzzRule(f *testing.F) {
	r := ruleFixture(f, RuleSize{100, 10, 10})
	f.Add(between(ruleHost, ruleFar, vlanTag(0x8100, 20)))
	f.Add(between(ruleHost, broadcast))
	f.Add(inVXLAN(rulePeer, 100, [3]byte{}, nil, between(ruleFar, ruleHost)))
	f.Add(inVXLAN(rulePeer, 100, [3]byte{0xab, 0xc4, 0x71}, nil, between(ruleFar, ruleNone)))
	f.Add(inVXLAN(rulePeer, 100, fabricShim, shim, between(ruleFar, ruleHost)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 1500 {
			return // no driver delivers less; a test run takes one page
		}
		for _, served := range []bool{true, false} {
			r.serve(t, served)
			r.check(t, Access, frame)
			r.check(t, Uplink, frame)
		}
		r.serve(t, true)
	})
}

// The kernel is shown one frame of a source in each interval, and the first one after the
// address was set; none is redirected without an interval. The interval can change.
func TestRuleRefresh(t *testing.T) {
	r := ruleFixture(t, RuleSize{10, 10, 10})
	frame := between(ruleHost, ruleFar, vlanTag(0x8100, 20))
	const every = 200 * time.Millisecond
	r.vlans[20].Refresh = every
	r.publish(t)
	began := time.Now()
	shown, redirected := 0, 0
	for time.Since(began) < 5*every/2 {
		switch name, _, _, _ := r.access.verdict(frame); name {
		case "pass_refresh":
			shown++
		case "redirect":
			redirected++
		default:
			t.Fatal(name)
		}
		if a, ok, err := r.rule.LookAt(modelKey(7, ruleHost)); err != nil || !ok || a.Passed > every+time.Second {
			t.Fatalf("%+v, %v, %v", a, ok, err)
		}
		time.Sleep(time.Millisecond)
	}
	if took := int(time.Since(began)/(every-2<<tickShift)) + 1; shown < 2 || shown > took || redirected == 0 {
		t.Errorf("the kernel was shown %d frames in %v, want 2 to %d; %d redirected", shown, time.Since(began), took, redirected)
	}
	r.put(t, modelKey(7, ruleHost), overlay.DestLocal(rulePort, 20))
	if a, ok, err := r.rule.LookAt(modelKey(7, ruleHost)); err != nil || !ok || a.Passed < 18*time.Minute || a.At != overlay.DestLocal(rulePort, 20) {
		t.Errorf("%+v, %v, %v", a, ok, err)
	}
	r.access.expect(frame, "pass_refresh")
	r.access.expect(frame, "redirect")
	r.vlans[20].Refresh = 0
	r.publish(t)
	r.access.expect(frame, "pass_refresh")
	r.access.expect(frame, "pass_refresh")
}

// Tables that are full say so, and keep what they have.
func TestRuleTables(t *testing.T) {
	r := newRule(t, RuleSize{Addresses: 64, Networks: 2, Peers: 1})
	var keys []overlay.FDBKey
	var places []overlay.Dest
	for i := range 80 {
		keys = append(keys, overlay.MakeFDBKey(1, overlay.MACFromUint64(uint64(i+1))))
		places = append(places, overlay.DestRemote(uint16(i)))
	}
	n, err := r.SetAddresses(keys, places)
	if n != 64 || !errors.Is(err, ErrRuleFull) {
		t.Fatalf("%d set, error %v", n, err)
	}
	if n, err := r.SetAddresses(keys[:64], places[1:65]); n != 64 || err != nil {
		t.Errorf("moves in a full table: %d set, error %v", n, err)
	}
	for i, key := range keys {
		if a, ok, err := r.LookAt(key); err != nil || ok != (i < 64) || ok && a.At != places[i+1] {
			t.Errorf("address %d: %+v, %v, %v", i, a, ok, err)
		}
	}
	if err := r.DeleteAddresses(keys[60:]); err != nil || r.Len() != 60 {
		t.Errorf("%d addresses are left, error %v", r.Len(), err)
	}
	if err := r.DeleteAddresses(slices.Concat(keys[62:70], keys[:10], keys[70:], keys[10:60])); err != nil || r.Len() != 0 {
		t.Errorf("%d addresses are left, error %v", r.Len(), err)
	}
	for _, key := range keys {
		if _, ok, err := r.LookAt(key); ok || err != nil {
			t.Errorf("%x is known, error %v", key, err)
		}
	}
	if n, err := r.SetAddresses(keys[:64], places[:64]); n != 64 || err != nil {
		t.Errorf("%d set, error %v", n, err)
	}
	if err := r.Set(&RuleTables{Networks: map[overlay.VNI]uint16{1: 1, 2: 2, 3: 3}}); !errors.Is(err, ErrRuleFull) {
		t.Errorf("three networks of two: %v", err)
	}
	if err := r.Set(&RuleTables{Peers: map[netip.Addr]bool{rulePeer: true, otherVTEP: true}}); !errors.Is(err, ErrRuleFull) {
		t.Errorf("two peers of one: %v", err)
	}
	if r.Memory() < 64*16 {
		t.Errorf("memory %d bytes", r.Memory())
	}
	for _, size := range []RuleSize{{0, 1, 1}, {1, 0, 1}, {1, 1, 0}} {
		if r, err := OpenRule(size); err == nil {
			t.Errorf("%+v opened", size)
			_ = r.Close()
		}
	}
}

// A tag beside the frame counts as one in it: user space gets it back, and the kernel the
// frame as it is.
func TestRuleReadsTags(t *testing.T) {
	w, rule := newWire(t, testenv.VethOptions{}), newRule(t, RuleSize{10, 10, 10})
	cfg := config(Access)
	cfg.Device, cfg.Rule, cfg.Port = w.index, rule, rulePort
	p := w.mustLoad(cfg)
	if _, err := w.attach(p, Native); err != nil {
		t.Fatal(err)
	}
	vlans := [VLANs]VLAN{0: {Network: 1, Refresh: time.Minute}, 20: {Network: 8, Refresh: time.Minute}}
	if err := p.SetVLANs(&vlans); err != nil {
		t.Fatal(err)
	}
	want := RuleTables{}
	want.Ways[1] = true
	if err := rule.Set(&want); err != nil {
		t.Fatal(err)
	}
	keys, places := []overlay.FDBKey{modelKey(7, ruleHost), modelKey(7, ruleFar)}, []overlay.Dest{overlay.DestLocal(rulePort, 20), overlay.DestRemote(1)}
	if _, err := rule.SetAddresses(keys, places); err != nil {
		t.Fatal(err)
	}
	r, tx, seen := w.receive(p, Native), packet(t, w.far, "far0"), packet(t, w.near, "near0")
	w.pushTags(0x8100, 20, true)
	frame := between(ruleHost, ruleFar)
	for range 2 { // the first one is the kernel's
		if _, err := unix.Write(tx, frame); err != nil {
			t.Fatal(err)
		}
	}
	if got, m := r.next(); !bytes.Equal(got, between(ruleHost, ruleFar, vlanTag(0x8100, 20))) || m.VLAN != 20 {
		t.Errorf("user space got %x, %+v", got, m)
	}
	got := make([]byte, 200)
	eventually(t, "the kernel's frame", func() bool {
		n, err := unix.Read(seen, got)
		got = got[:max(n, 0)]
		ok := err == nil && bytes.Equal(got, frame)
		got = got[:cap(got)]
		return ok
	})
	n, err := p.Counters()
	if err != nil || n["pass_refresh"] != 1 || n["redirect"] != 1 {
		t.Errorf("counters %v, error %v", n, err)
	}
}
