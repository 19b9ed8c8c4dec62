package loomctl

import (
	"net/netip"
	"net/url"
	"strconv"

	"github.com/loomfabric/loom/config/fabric"
)

// flowEnds are what a question calls the ends of a flow.
var flowEnds = []string{"src", "dst"}

// nameHosts has a question about a flow take the names of the lab's hosts. It returns the
// hosts that were named, as src and dst; without a lab there are none.
func (o *options) nameHosts(q url.Values) (map[string]*fabric.Host, error) {
	if o.lab == "" {
		return nil, nil
	}
	topo, err := fabric.OfLab(o.lab)
	if err != nil {
		return nil, err
	}
	return namedHosts(topo, q), nil
}

// namedHosts replaces the names of a topology's hosts by their addresses: by IPv6 ones if
// the flow's other end is one.
func namedHosts(topo *fabric.Topology, q url.Values) map[string]*fabric.Host {
	named, six := make(map[string]*fabric.Host), false
	for _, end := range flowEnds {
		a, err := netip.ParseAddr(q.Get(end))
		six = six || err == nil && a.Is6()
	}
	for _, end := range flowEnds {
		for i := range topo.Hosts {
			h := &topo.Hosts[i]
			if h.Name != q.Get(end) {
				continue
			}
			named[end] = h
			q.Set(end, map[bool]netip.Addr{false: h.Addr.Addr(), true: h.Addr6.Addr()}[six].String())
			break
		}
	}
	return named
}

// setVNI says in which network a flow is whose ends are a lab's hosts, if nobody has: in the
// source's, if that is one.
func setVNI(q url.Values, named map[string]*fabric.Host) {
	for _, end := range flowEnds {
		if h := named[end]; h != nil && !q.Has("vni") {
			q.Set("vni", strconv.Itoa(int(h.VNI)))
		}
	}
}
