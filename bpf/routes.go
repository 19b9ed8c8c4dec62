package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// maxRoutes bounds the prefixes of Routes. Memory is taken for those that there are.
const maxRoutes = 1 << 20

// Routes says which VXLAN a spine's programs take, by the longest prefix of its outer
// destination. The programs of a node's ports share one, and it follows the node's
// routes while they run. It is not safe for concurrent use.
type Routes struct {
	trie *ebpf.Map
	has  map[netip.Prefix]bool // what the trie says
}

// NewRoutes returns a trie that leaves everything to the kernel.
func NewRoutes() (*Routes, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	spec, err := loadLoom()
	if err != nil {
		return nil, fmt.Errorf("read embedded object: %w", err)
	}
	trie := spec.Maps["remotes"]
	trie.MaxEntries = maxRoutes
	m, err := ebpf.NewMap(trie)
	if err != nil {
		return nil, fmt.Errorf("make the map of routes: %w", err)
	}
	return &Routes{trie: m, has: make(map[netip.Prefix]bool)}, nil
}

// Close frees the trie, once no program uses it any more.
func (r *Routes) Close() error { return r.trie.Close() }

// maps returns what programs are to use in place of maps of their own.
func (r *Routes) maps() map[string]*ebpf.Map {
	if r == nil {
		return nil
	}
	return map[string]*ebpf.Map{"remotes": r.trie}
}

// Leave puts in force what want, by prefix, leaves to the kernel. It is called before the
// workers have the routes that want follows from: what they are not to know any more does
// not come to them.
func (r *Routes) Leave(want map[netip.Prefix]bool) error { return r.update(want, false) }

// Take puts in force what want says is ours. It is called after the workers have the
// routes.
func (r *Routes) Take(want map[netip.Prefix]bool) error { return r.update(want, true) }

// update makes the prefixes say what want says that are to be ours, or that are not, and
// drops those that said the opposite and are not in it: without them a wider prefix
// decides.
func (r *Routes) update(want map[netip.Prefix]bool, ours bool) (err error) {
	value := uint8(0)
	if ours {
		value = 1
	}
	for p, is := range want {
		if was, known := r.has[p]; is != ours || known && was == ours {
			continue
		}
		if !p.IsValid() || !p.Addr().Is4() {
			err = errors.Join(err, fmt.Errorf("route to %v: it is not an IPv4 prefix: the underlay is IPv4", p))
			continue
		}
		if e := r.trie.Put(lpmKey(p), value); e != nil {
			err = errors.Join(err, fmt.Errorf("put the route to %v into the XDP program's table: %w", p, e))
			continue
		}
		r.has[p] = ours
	}
	for p, was := range r.has {
		if _, is := want[p]; is || was == ours {
			continue
		}
		if e := r.trie.Delete(lpmKey(p)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("drop the route to %v from the XDP program's table: %w", p, e))
			continue
		}
		delete(r.has, p)
	}
	return err
}

func lpmKey(p netip.Prefix) loomLpmKey {
	return loomLpmKey{Prefixlen: uint32(p.Bits()), Addr: beAddr(p.Masked().Addr())}
}
