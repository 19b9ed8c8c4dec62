package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// Routes is the answer of /v1/routes: where packets in tunnels go from a node. On a leaf
// there is one for each peer.
type Routes struct {
	Routes []Route `json:"routes"` // by prefix
}

// Route is where packets to a prefix of VTEPs go.
type Route struct {
	Prefix   netip.Prefix `json:"prefix"`
	NextHops []NextHop    `json:"next_hops"` // none: the packets are dropped
}

func routes(configs []dataplane.PortConfig, t *dataplane.Tables) Routes {
	all := []Route{}
	if t == nil {
		return Routes{all}
	}
	add := func(prefix netip.Prefix, hops []dataplane.HopID, weights []uint16) {
		all = append(all, Route{prefix, nextHops(configs, t, hops, weights)})
	}
	for _, p := range t.Peers {
		if p.VTEP.IsValid() {
			add(netip.PrefixFrom(p.VTEP, p.VTEP.BitLen()), p.Hops, p.Weights)
		}
	}
	if t.Routes != nil {
		for prefix, group := range t.Routes.All() {
			g := at(t.Groups, int(group))
			add(prefix, g.Hops, g.Weights)
		}
	}
	slices.SortFunc(all, func(a, b Route) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	return Routes{all}
}

// outerParameters are those of /v1/route.
var outerParameters = []string{"src", "dst", "sport", "in", "capable", "selector"}

// parseOuter reads the packets that /v1/route is asked about.
func parseOuter(q url.Values) (*dataplane.OuterFlow, error) {
	f := &dataplane.OuterFlow{In: q.Get("in")}
	var errs []error
	vtep := func(name string) netip.Addr {
		a, err := netip.ParseAddr(q.Get(name))
		if err != nil || a.Zone() != "" {
			errs = append(errs, fmt.Errorf("%s %q: give the address of a VTEP", name, q.Get(name)))
		}
		return a.Unmap()
	}
	f.Src, f.Dst = vtep("src"), vtep("dst")
	port, err := parseNumber(q, "sport", 65535)
	errs = append(errs, err)
	f.SrcPort = uint16(port)
	if text := q.Get("capable"); text != "" {
		if f.Capable, err = strconv.ParseBool(text); err != nil {
			errs = append(errs, fmt.Errorf("capable %q: use true or false", text))
		}
	}
	if q.Has("selector") {
		n, err := parseNumber(q, "selector", 15)
		if s := uint8(n); err == nil && f.Capable {
			f.Selector = &s
		} else if err == nil {
			err = errors.New("packets without the fabric's fields have no selector: add capable=true")
		}
		errs = append(errs, err)
	}
	return f, errors.Join(errs...)
}

// arrivalParameters are those of /v1/arrival.
var arrivalParameters = []string{"from", "in", "vni", "dst_mac"}

// parseArrival reads the packets that /v1/arrival is asked about.
func parseArrival(q url.Values) (*dataplane.InnerFlow, error) {
	a := &dataplane.InnerFlow{In: q.Get("in")}
	from, err := netip.ParseAddr(q.Get("from"))
	if err != nil || from.Zone() != "" {
		err = fmt.Errorf("from %q: give the address of a VTEP", q.Get("from"))
	}
	a.From = from.Unmap()
	vni, verr := parseNumber(q, "vni", 1<<24-1)
	a.VNI = overlay.VNI(vni)
	mac, merr := parseMAC("dst_mac", q.Get("dst_mac"))
	a.DstMAC = mac
	return a, errors.Join(err, verr, merr)
}

// parseNumber returns a parameter that is 0 unless it is given.
func parseNumber(q url.Values, name string, top uint64) (uint64, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > top {
		return 0, fmt.Errorf("%s %q: use 0 to %d", name, text, top)
	}
	return n, nil
}
