package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

func TestAttributes(t *testing.T) {
	type attr struct {
		kind  uint16
		value string
	}
	head := func(size int, kind uint16, value string) string {
		b := binary.NativeEndian.AppendUint16(nil, uint16(size))
		return string(binary.NativeEndian.AppendUint16(b, kind)) + value
	}
	for _, c := range []struct {
		name, b string
		want    []attr
	}{
		{"nothing", "", nil},
		{"one", head(8, 5, "abcd"), []attr{{5, "abcd"}}},
		{"no value", head(4, 5, ""), []attr{{5, ""}}},
		{"padded", head(5, 5, "a\x00\x00\x00") + head(6, 6, "bc\x00\x00"), []attr{{5, "a"}, {6, "bc"}}},
		{"the last one's padding is missing", head(8, 5, "abcd") + head(5, 6, "e"), []attr{{5, "abcd"}, {6, "e"}}},
		{"flags", head(8, unix.NLA_F_NESTED|5, "abcd") + head(8, unix.NLA_F_NET_BYTEORDER|6, "efgh"), []attr{{5, "abcd"}, {6, "efgh"}}},
		{"longer than the message", head(8, 5, "abcd") + head(9, 6, "efgh"), []attr{{5, "abcd"}}},
		{"shorter than its head", head(8, 5, "abcd") + head(3, 6, "efgh") + head(8, 7, "ijkl"), []attr{{5, "abcd"}}},
		{"of size 0", head(0, 5, "abcd"), nil},
		{"half a head", head(8, 5, "abcd") + "\x08\x00\x06", []attr{{5, "abcd"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []attr
			for kind, v := range Attributes([]byte(c.b)) {
				got = append(got, attr{kind, string(v)})
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// A value of another length than its type has must not be taken for something.
func TestValues(t *testing.T) {
	for n := range 20 {
		v := bytes.Repeat([]byte{1}, n)
		want := func(size int, number uint64) uint64 {
			if n == size {
				return number
			}
			return 0
		}
		if got := uint64(Uint8(v)); got != want(1, 1) {
			t.Errorf("Uint8 of %d bytes: %#x", n, got)
		}
		if got := uint64(Uint16(v)); got != want(2, 0x0101) {
			t.Errorf("Uint16 of %d bytes: %#x", n, got)
		}
		if got := uint64(Uint32(v)); got != want(4, 0x01010101) {
			t.Errorf("Uint32 of %d bytes: %#x", n, got)
		}
		if got := Addr(v).IsValid(); got != (n == 4 || n == 16) {
			t.Errorf("Addr of %d bytes is valid: %t", n, got)
		}
	}
	if got := BE16([]byte{1, 2}); got != 0x0102 || BE16([]byte{1, 2, 3}) != 0 {
		t.Errorf("BE16: %#x", got)
	}
	if got := BE32([]byte{1, 2, 3, 4}); got != 0x01020304 || BE32([]byte{1, 2, 3}) != 0 {
		t.Errorf("BE32: %#x", got)
	}
	if got := Index(binary.NativeEndian.AppendUint32(nil, 1<<32-2)); got != -2 {
		t.Errorf("Index: %d", got)
	}
	if got := Text([]byte("eth0\x00\x00")); got != "eth0" {
		t.Errorf("Text: %q", got)
	}
	if got := Addr([]byte{15: 1}); got != netip.IPv6Loopback() {
		t.Errorf("Addr: %v", got)
	}
}

// FuzzAttributes compares with the standard library's reader, which refuses what does not
// fit. Ours has taken what stands before that.
func FuzzAttributes(f *testing.F) {
	f.Add(AppendUint32(AppendUint32(nil, 1, 2), unix.NLA_F_NESTED|3, 4))
	f.Add([]byte{5, 0, 1, 0, 9, 0, 0, 0, 200, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		type attr struct {
			kind  uint16
			value []byte
		}
		b = append(b, make([]byte, -len(b)&3)...) // the library's reader panics without the last one's padding
		var got []attr
		for kind, v := range Attributes(b) {
			got = append(got, attr{kind, v})
		}
		whole := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWROUTE}, Data: append(make([]byte, unix.SizeofRtMsg), b...)}
		list, err := syscall.ParseNetlinkRouteAttr(&whole)
		if err != nil {
			return
		}
		var want []attr
		for _, a := range list {
			want = append(want, attr{a.Attr.Type &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER), a.Value})
		}
		if !slices.EqualFunc(got, want, func(a, b attr) bool { return a.kind == b.kind && bytes.Equal(a.value, b.value) }) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// FuzzMessages is FuzzAttributes for messages.
func FuzzMessages(f *testing.F) {
	head := func(size uint32, body ...byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, size)
		return append(append(b, 16, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0), body...)
	}
	f.Add(slices.Concat(head(16), head(17, 1, 0, 0, 0), head(20, 1, 2, 3, 4)))
	f.Add(slices.Concat(head(16), head(24, 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := slices.Collect(Messages(b))
		list, err := syscall.ParseNetlinkMessage(b)
		if err != nil {
			return
		}
		if !slices.EqualFunc(got, list, func(m Message, w syscall.NetlinkMessage) bool {
			return m.Kind == w.Header.Type && m.Flags == w.Header.Flags && m.Seq == w.Header.Seq && bytes.Equal(m.Payload, w.Data)
		}) {
			t.Errorf("%v, want %v", got, list)
		}
	})
}

// routes is how many routes a list has in TestDump: more than the kernel puts into one read.
const routes = 3000

func openIn(t *testing.T, ns *testenv.Namespace, groups ...int) (s *Socket) {
	t.Helper()
	ns.Do(t, func() {
		var err error
		if s, err = Open(unix.NETLINK_ROUTE, groups...); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

// TestDump: a list is whole, also after one that was given up half way, and an error of
// the kernel's is one of Dump.
func TestDump(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "rtnl")
	var batch bytes.Buffer
	for i := range routes {
		fmt.Fprintf(&batch, "route add blackhole 10.0.%d.%d/32\n", i>>8, i&0xff)
	}
	c := exec.Command("ip", "-n", ns.Name, "-batch", "-")
	c.Stdin = &batch
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := openIn(t, ns)
	defer s.Close()
	if err := s.SetStrict(); err != nil {
		t.Fatal(err)
	}
	req := make([]byte, unix.SizeofRtMsg)
	req[0] = unix.AF_INET
	req = AppendUint32(req, unix.RTA_TABLE, unix.RT_TABLE_MAIN)
	dump := func(afterRead func() error) (n int, err error) {
		err = s.Dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, req, func([]byte) { n++ }, afterRead)
		return n, err
	}
	reads := 0
	if n, err := dump(func() error { reads++; return nil }); n != routes || err != nil || reads < 2 {
		t.Errorf("%d of %d routes in %d reads: %v", n, routes, reads, err)
	}
	enough := errors.New("enough")
	if n, err := dump(func() error { return enough }); !errors.Is(err, enough) || n == 0 || n >= routes {
		t.Errorf("%d routes until the list was given up: %v", n, err)
	}
	for { // the kernel lists one thing at a time
		n, err := dump(nil)
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if n != routes || err != nil {
			t.Errorf("%d of %d routes after a list that was given up: %v", n, routes, err)
		}
		break
	}
	if err := s.Dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, AppendUint32(req[:unix.SizeofRtMsg], unix.RTA_TABLE, 99), func([]byte) {}, nil); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the routes of a table that is not there: %v", err)
	}
}

// TestReceive: events come, none that the filter leaves out, and Close ends the wait.
func TestReceive(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "rtnl")
	s := openIn(t, ns, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_ROUTE)
	noLinks := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 4}, // the low byte of nlmsg_type
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.RTM_NEWLINK},
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 30},
	}
	if err := errors.Join(s.SetBuffer(1<<20), s.SetFilter(noLinks)); err != nil {
		t.Fatal(err)
	}
	kinds := make(chan uint16, 100)
	ended := make(chan error, 1)
	go func() {
		for {
			b, err := s.Receive(nil)
			if err != nil {
				ended <- err
				return
			}
			for m := range Messages(b) {
				kinds <- m.Kind
			}
		}
	}()
	if out, err := exec.Command("ip", "-n", ns.Name, "link", "add", "a0", "type", "veth", "peer", "a1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("ip", "-n", ns.Name, "route", "add", "blackhole", "10.0.0.1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	select {
	case got := <-kinds:
		if got != unix.RTM_NEWROUTE {
			t.Errorf("message %d came first", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("no event came")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("the wait ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the wait does not end")
	}
}
