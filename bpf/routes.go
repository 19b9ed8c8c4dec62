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
	trie  *ebpf.Map             // IPv4
	trie6 *ebpf.Map             // IPv6
	has   map[netip.Prefix]bool // what the tries say
}

// NewRoutes returns tries that leave everything to the kernel.
func NewRoutes() (*Routes, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise RLIMIT_MEMLOCK: %w", err)
	}
	spec, err := loadLoom()
	if err != nil {
		return nil, fmt.Errorf("read embedded object: %w", err)
	}
	r := &Routes{has: make(map[netip.Prefix]bool)}
	for name, to := range map[string]**ebpf.Map{"remotes": &r.trie, "remotes6": &r.trie6} {
		trie := spec.Maps[name]
		trie.MaxEntries = maxRoutes
		if *to, err = ebpf.NewMap(trie); err != nil {
			return nil, errors.Join(fmt.Errorf("make the map of routes: %w", err), r.Close())
		}
	}
	return r, nil
}

// Close frees the tries, once no program uses them any more.
func (r *Routes) Close() error { return errors.Join(r.trie.Close(), r.trie6.Close()) }

// maps returns what programs are to use in place of maps of their own.
func (r *Routes) maps() map[string]*ebpf.Map {
	if r == nil {
		return nil
	}
	return map[string]*ebpf.Map{"remotes": r.trie, "remotes6": r.trie6}
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
		if !p.IsValid() {
			err = errors.Join(err, fmt.Errorf("route to %v: it is no prefix", p))
			continue
		}
		if e := r.put(p, value); e != nil {
			err = errors.Join(err, fmt.Errorf("put the route to %v into the XDP program's table: %w", p, e))
			continue
		}
		r.has[p] = ours
	}
	for p, was := range r.has {
		if _, is := want[p]; is || was == ours {
			continue
		}
		if e := r.delete(p); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("drop the route to %v from the XDP program's table: %w", p, e))
			continue
		}
		delete(r.has, p)
	}
	return err
}

func (r *Routes) put(p netip.Prefix, value uint8) error {
	if p.Addr().Is4() {
		return r.trie.Put(lpmKey(p), value)
	}
	return r.trie6.Put(lpmKey6(p), value)
}

func (r *Routes) delete(p netip.Prefix) error {
	if p.Addr().Is4() {
		return r.trie.Delete(lpmKey(p))
	}
	return r.trie6.Delete(lpmKey6(p))
}

func lpmKey(p netip.Prefix) loomLpmKey {
	return loomLpmKey{Prefixlen: uint32(p.Bits()), Addr: beAddr(p.Masked().Addr())}
}

func lpmKey6(p netip.Prefix) loomLpmKey6 {
	return loomLpmKey6{Prefixlen: uint32(p.Bits()), Addr: beAddr6(p.Masked().Addr())}
}
