package lab

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/namespace"
	"github.com/loomfabric/loom/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestFRRConf holds the configurations that FRR gets against golden files. That FRR
// takes them, and makes the routes that they should, is tested in test/frr.
func TestFRRConf(t *testing.T) {
	const file = "name: x\ncontrol: frr\nleaves: 2\nspines: 2\nlinks: {parallel: 2}\nhosts: {per_leaf: 1}\nvnis: [{vni: 1}]\nfrr: "
	for _, tc := range []struct{ name, frr string }{
		{"unnumbered", "{}"},
		{"unnumbered-evpn-bfd", "{evpn: true, bfd: 300ms}"},
		{"bgp-evpn", "{routing: bgp, evpn: true}"},
		{"ospf-bfd", "{routing: ospf, bfd: 50ms}"},
		{"ospf-evpn", "{routing: ospf, evpn: true}"},
		{"isis-evpn-bfd", "{routing: isis, evpn: true, bfd: 300ms}"},
	} {
		f, err := fabric.Parse("x.yaml", []byte(file+tc.frr+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		l := New(f)
		var got bytes.Buffer
		fmt.Fprintf(&got, "! daemons: %s\n", strings.Join(l.frrDaemons(), " "))
		for _, n := range []fabric.Node{l.Topo.Leaves[1], l.Topo.Spines[0]} {
			if err := frrConf.Execute(&got, l.frrNode(n)); err != nil {
				t.Fatal(err)
			}
		}
		golden := filepath.Join("testdata", "frr-"+tc.name+".golden")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want) {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, &got, want)
		}
	}
}

const withFRR = `dataplane: kernel
control: frr
frr: {evpn: true, gateway: true}
leaves: 2
spines: 2
hosts: {per_leaf: 2}
vnis:
  - {vni: 10, hosts: [h0, h2]}
  - {vni: 20, hosts: [h1, h3]}
`

// TestFRR: FRR finds the routes of a mixed fabric and follows a fault, EVPN the flood
// lists; leaves route between VNIs; and a lab whose names were removed takes FRR's
// daemons down with it all the same.
func TestFRR(t *testing.T) {
	l, file := withDaemons(t, withFRR+"kernel_leaves: [L1]\n")
	up(t, l)
	if procs := inside(t, l); len(procs) != 4*2+3 {
		t.Errorf("%d processes, want zebra and bgpd of 4 nodes, leafd and 2 spined", len(procs))
	}
	for _, to := range []string{"10.100.0.3", "10.101.0.4"} { // by a bridge and by a gateway
		from := testenv.OpenNamespace(t, l.ns("h0"))
		host, _ := l.Topo.Host("h2")
		if to == "10.101.0.4" { // leafd takes what is for the gateway: from the leaf without
			from, host = testenv.OpenNamespace(t, l.ns("h2")), l.Topo.Hosts[3]
		}
		if out, ok := testenv.Ping(t, from, host.Addr.Addr(), 56, 2); !ok {
			t.Errorf("ping %s:\n%s", to, out)
		}
	}
	for _, do := range []func(string) error{l.Fail, l.Restore} { // each waits for the routes
		if err := do("L0-S1.0"); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := inHost(t, file, "S1", "vtysh", "--vty_socket", l.frrDir("S1"), "-c", "show bgp summary"); code != 0 || !strings.Contains(out, "dn-l0-0") {
		t.Errorf("vtysh: %d, %s", code, out)
	}
	for _, n := range l.nodes() {
		if err := namespace.Delete(l.ns(n.Name)); err != nil {
			t.Fatal(err)
		}
	}
	left := inside(t, l)
	if len(left) != 4*2+3 {
		t.Errorf("%d processes are found without their namespaces' names", len(left))
	}
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(left, func(p process) bool { return !p.wait(0) }) {
		t.Error("processes are left")
	}
	gone(t, l, 0)
}

// TestFRRDies: a routing daemon that ends before the fabric is up ends its building,
// and is named.
func TestFRRDies(t *testing.T) {
	l, _ := newLab(t, withFRR)
	if err := os.MkdirAll(l.frrDir("L0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := namespace.Create(l.ns("L0")); err != nil {
		t.Fatal(err)
	}
	if err := l.writeFRR(l.Topo.Leaves[0]); err != nil {
		t.Fatal(err)
	}
	if err := l.startRouting("L0", []string{"zebra"}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(l.children[0].cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := l.await(context.Background(), "routes", func() error { return errors.New("none") })
	if err == nil || !strings.Contains(err.Error(), "zebra in L0 has ended") {
		t.Errorf("%v", err)
	}
}
