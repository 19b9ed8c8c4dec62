package loomctl

import (
	"net/url"
	"testing"

	"github.com/loomfabric/loom/config/fabric"
)

// Names of hosts stand for their addresses, of the family that the flow's other end has.
func TestNamedHosts(t *testing.T) {
	f, err := fabric.Parse("f.yaml", []byte("name: x\nleaves: 2\nspines: 1\nhosts: {per_leaf: 1}\nvnis: [{vni: 7, hosts: [h0]}, {vni: 8, hosts: [h1]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	topo := f.Expand()
	h0, h1 := &topo.Hosts[0], &topo.Hosts[1]
	for _, tt := range []struct{ src, dst, wantSrc, wantDst, vni string }{
		{"h0", "h1", h0.Addr.Addr().String(), h1.Addr.Addr().String(), "7"},
		{"h1", "10.9.9.9", h1.Addr.Addr().String(), "10.9.9.9", "8"},
		{"fd00::9", "h1", "fd00::9", h1.Addr6.Addr().String(), "8"},
		{"02:00:00:00:00:01", "h7", "02:00:00:00:00:01", "h7", ""},
	} {
		q := url.Values{"src": {tt.src}, "dst": {tt.dst}}
		setVNI(q, namedHosts(topo, q))
		if q.Get("src") != tt.wantSrc || q.Get("dst") != tt.wantDst || q.Get("vni") != tt.vni {
			t.Errorf("%s, %s: %v", tt.src, tt.dst, q)
		}
	}
	q := url.Values{"src": {"h0"}, "vni": {"9"}}
	setVNI(q, namedHosts(topo, q))
	if q.Get("vni") != "9" {
		t.Errorf("the caller has said which network: %v", q)
	}
}

// Which lab has the hosts has to be found, or the names mean nothing.
func TestNoSuchLab(t *testing.T) {
	o := &options{}
	o.lab = "no-such-lab"
	if _, err := o.nameHosts(url.Values{}); err == nil {
		t.Error("a lab that is not up has hosts")
	}
}
