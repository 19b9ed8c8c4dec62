package bridge

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
	"github.com/loomfabric/loom/internal/testenv"
)

var (
	record = flag.Bool("record", false, "record testdata/messages.txt anew from a kernel (needs root)")
	update = flag.Bool("update", false, "rewrite what testdata/messages.txt says that messages mean")
)

// recordedFiles have messages of kernels: this machine's when they were recorded, and for
// VLANs Linux 6.1 as User Mode Linux, whose test records them.
const (
	recordedFile = "testdata/messages.txt"
	vlanFile     = "testdata/vlan-messages.txt"
)

// recorded is a message of a kernel, and what it means.
type recorded struct {
	kind    uint16
	payload []byte
	meaning string
}

// kindNames are the kinds of messages that are recorded.
var kindNames = map[uint16]string{
	unix.RTM_NEWLINK: "RTM_NEWLINK", unix.RTM_DELLINK: "RTM_DELLINK", unix.RTM_NEWNEIGH: "RTM_NEWNEIGH", unix.RTM_DELNEIGH: "RTM_DELNEIGH",
	unix.RTM_NEWVLAN: "RTM_NEWVLAN", unix.RTM_NEWTUNNEL: "RTM_NEWTUNNEL", unix.RTM_DELTUNNEL: "RTM_DELTUNNEL", unix.RTM_NEWQDISC: "RTM_NEWQDISC",
	nftNewChain: "NFT_MSG_NEWCHAIN",
}

const nftNewChain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN

// meaning says what a message means.
func meaning(kind uint16, b []byte) string {
	var v any
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(b) > 0 && b[0] == unix.AF_BRIDGE {
			p, err := parsePort(b)
			return fmt.Sprintf("port %d master %d member %+v vlans %+v tunnels %+v %s", p.Index, p.Master, deref(p.Member), p.VLANs, p.Tunnels, errText(err))
		}
		l, err := parseLink(b)
		return fmt.Sprintf("link %d %s kind %q mac %v mtu %d up %t master %d lower %d xdp %d vlan %d protocol %#x bridge %+v vxlan %+v member %+v %s",
			l.Index, l.Name, l.Kind, l.MAC, l.MTU, l.Up, l.Master, l.Lower, l.XDP, l.VLAN, l.Protocol, deref(l.Bridge), deref(l.VXLAN), deref(l.Member), errText(err))
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		e, ok := parseEntry(b)
		if !ok {
			return "no entry"
		}
		v = e
	case unix.RTM_NEWTUNNEL, unix.RTM_DELTUNNEL:
		i, r, err := parseVNIs(b)
		return fmt.Sprintf("device %d VNIs %v %s", i, r, errText(err))
	case unix.RTM_NEWVLAN:
		i, v, err := parseVLANStates(b)
		return fmt.Sprintf("port %d blocked %+v %s", i, v, errText(err))
	case unix.RTM_NEWQDISC:
		i, name, err := parseQdisc(b)
		return fmt.Sprintf("interface %d %s %s", i, name, errText(err))
	case nftNewChain:
		c, ok := parseChain(b)
		return fmt.Sprintf("%+v %t", c, ok)
	}
	return fmt.Sprintf("%+v", v)
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func readRecorded(t testing.TB, file string) (list []recorded) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	numbers := make(map[string]uint16)
	for n, name := range kindNames {
		numbers[name] = n
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '\t':
			list[len(list)-1].meaning = line[1:]
		default:
			name, digits, _ := strings.Cut(line, " ")
			payload, err := hex.DecodeString(digits)
			if err != nil || numbers[name] == 0 {
				t.Fatalf("%s: %q is no message", file, line)
			}
			list = append(list, recorded{kind: numbers[name], payload: payload})
		}
	}
	return list
}

func writeRecorded(t testing.TB, file string, list []recorded) {
	t.Helper()
	b := bytes.NewBufferString("# Messages of a kernel, and below each what it means. See messages_test.go.\n")
	for _, r := range list {
		fmt.Fprintf(b, "%s %x\n\t%s\n", kindNames[r.kind], r.payload, meaning(r.kind, r.payload))
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The parsers read what kernels say.
func TestRecordedMessages(t *testing.T) {
	if *record {
		writeRecorded(t, recordedFile, recordMessages(t, everyMessage...))
	}
	for _, file := range []string{recordedFile, vlanFile} {
		list := readRecorded(t, file)
		if *update {
			writeRecorded(t, file, list)
			continue
		}
		if len(list) < 20 {
			t.Fatalf("%s: only %d messages are recorded", file, len(list))
		}
		for _, r := range list {
			if got := meaning(r.kind, r.payload); got != r.meaning {
				t.Errorf("%s: %s %x\nmeans %s\nwant  %s", file, kindNames[r.kind], r.payload, got, r.meaning)
			}
		}
	}
}

// everyMessage is what this machine's kernel is asked to do for the record.
var everyMessage = []string{
	"ip link add br100 up type bridge ageing_time 2000",
	"ip link add vx100 up type vxlan id 100 local 10.0.0.1 dstport 4789 nolearning",
	"ip link set vx100 master br100",
	"ip link add gbp type vxlan id 101 local fd00::1 dstport 4790 gbp",
	"ip link add svd up type vxlan dstport 4791 local 10.0.0.1 external vnifilter nolearning",
	"bridge vni add vni 300-301 dev svd", "bridge vni delete vni 301 dev svd",
	"ip link add a0 up type veth peer name ha0", "ip link set ha0 up", "ip link set a0 master br100",
	"bridge link set dev a0 isolated on learning off", "bridge link set dev a0 state 0", "bridge link set dev a0 locked on", "bridge link set dev a0 state 3",
	"ip link add mac0 link br100 type macvlan", "tc qdisc add dev a0 clsact",
	"bridge fdb add 02:00:00:00:00:01 dev vx100 dst 10.0.0.2 self extern_learn", "bridge fdb add 02:00:00:00:00:01 dev vx100 master extern_learn",
	"bridge fdb append 00:00:00:00:00:00 dev vx100 dst 10.0.0.2 self",
	"bridge fdb add 02:00:00:00:00:02 dev vx100 dst 10.0.0.2 port 4790 vni 999 via a0 self",
	"bridge fdb add 02:00:00:00:00:03 dev a0 master dynamic", "bridge fdb replace 02:00:00:00:00:03 dev vx100 master extern_learn",
	"bridge fdb add 02:00:00:00:00:04 dev a0 master static", "bridge fdb del 02:00:00:00:00:04 dev a0 master",
	"bridge fdb add 02:00:00:00:00:05 dev svd dst 10.0.0.3 src_vni 300 vni 300 self extern_learn",
	"ip nexthop add id 5 via 10.0.0.7 fdb", "ip nexthop add id 6 via 10.0.0.8 fdb", "ip nexthop add id 7 group 5/6,3 fdb",
	"bridge fdb add 02:00:00:00:00:06 dev vx100 nhid 7 self", "bridge fdb del 02:00:00:00:00:06 dev vx100 self",
	"ip link add vx6 type vxlan id 106 local fd00::1 dstport 4792 nolearning udp6zerocsumrx", "bridge fdb add 02:00:00:00:00:07 dev vx6 dst fd00::2 self extern_learn",
	"ip link set a0 nomaster", "ip link del vx100",
}

// recordMessages has a kernel say what the parsers read, by these commands.
func recordMessages(t *testing.T, commands ...string) (list []recorded) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "record")
	r := &rig{ns: ns}
	var s *rtnl.Socket
	ns.Do(t, func() {
		var err error
		if s, err = rtnl.Open(unix.NETLINK_ROUTE, groups...); err != nil {
			t.Fatal(err)
		}
	})
	seen := make(map[string]bool)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			b, err := s.Receive(nil)
			if err != nil {
				return
			}
			for m := range rtnl.Messages(b) {
				if text := meaning(m.Kind, m.Payload); kindNames[m.Kind] != "" && !seen[text] && text != "no entry" {
					seen[text] = true
					list = append(list, recorded{kind: m.Kind, payload: bytes.Clone(m.Payload)})
				}
			}
		}
	}()
	r.run(t, commands...)
	time.Sleep(200 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	return list
}

// nested returns an attribute with others in it.
func nested(kind uint16, parts ...[]byte) []byte {
	value := bytes.Join(parts, nil)
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func vlanInfo(flags, vid uint16) []byte {
	v := binary.NativeEndian.AppendUint16(nil, flags)
	return nested(bridgeVLANInfo, binary.NativeEndian.AppendUint16(v, vid))
}

func tunnelInfo(vni uint32, vid, flags uint16) []byte {
	return nested(bridgeTunnelInfo|unix.NLA_F_NESTED, nested(tunnelID, binary.NativeEndian.AppendUint32(nil, vni)),
		nested(tunnelVID, binary.NativeEndian.AppendUint16(nil, vid)), nested(tunnelFlags, binary.NativeEndian.AppendUint16(nil, flags)))
}

// portMessage is the payload of RTM_NEWLINK of AF_BRIDGE.
func portMessage(ifindex int, spec ...[]byte) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	b[0] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(b[4:], uint32(ifindex))
	return append(b, nested(unix.IFLA_AF_SPEC, spec...)...)
}

// Ranges of VLANs, and of VLANs with VNIs, are two attributes each.
func TestParsePortRanges(t *testing.T) {
	p, err := parsePort(portMessage(7,
		vlanInfo(vlanPVID|vlanUntagged, 1), vlanInfo(vlanRangeBegin, 10), vlanInfo(vlanRangeEnd, 19), vlanInfo(vlanUntagged, 30),
		vlanInfo(0, 0), vlanInfo(0, 4095), vlanInfo(vlanRangeBegin, 50), // no VLANs, and a range without end
		tunnelInfo(1000, 10, 0), tunnelInfo(2000, 11, vlanRangeBegin), tunnelInfo(2008, 19, vlanRangeEnd)))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(p.VLANs, p.Tunnels)
	if want := fmt.Sprint([]VLANRange{{1, 1, true, true}, {10, 19, false, false}, {30, 30, false, true}}, []TunnelRange{{10, 10, 1000}, {11, 19, 2000}}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Whatever comes, the parsers read nothing beyond it and make nothing that the model does
// not bear.
func FuzzMessages(f *testing.F) {
	for _, file := range []string{recordedFile, vlanFile} {
		for _, r := range readRecorded(f, file) {
			f.Add(r.kind, r.payload)
		}
	}
	f.Add(uint16(unix.RTM_NEWLINK), portMessage(7, vlanInfo(vlanRangeBegin, 1), vlanInfo(vlanRangeEnd, 4094), tunnelInfo(1, 1, vlanRangeBegin), tunnelInfo(4094, 4094, vlanRangeEnd)))
	f.Fuzz(func(t *testing.T, kind uint16, b []byte) {
		_ = meaning(kind, b)
		if p, err := parsePort(b); err == nil {
			for _, v := range p.VLANs {
				if v.First == 0 || v.First > v.Last || v.Last > maxVLAN {
					t.Fatalf("VLANs %d to %d", v.First, v.Last)
				}
			}
		}
		sink := &recorder{t: t, has: make(map[key]Place)}
		e := newEngine(sink, func(uint32) bool { return false })
		now := time.Unix(1, 0)
		e.beginList(now)
		e.endList(&listing{kinds: everything, vnis: map[int]VNISet{}}, now)
		for _, k := range []uint16{kind, unix.RTM_NEWLINK} {
			e.message(k, b, now)
		}
		if entry, ok := parseEntry(b); ok {
			e.addrs.event(&entry, kind%2 == 1)
		}
		e.flush(now.Add(time.Second))
	})
}
