package dataplane

import (
	"testing"

	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// FuzzLeaf feeds a leaf anything by any port: nothing may panic, and every
// frame must be accounted for.
func FuzzLeaf(f *testing.F) {
	good := udp4(hostB, hostA, 0, 1, 40)
	f.Add(uint8(acc0), good)
	f.Add(uint8(acc0), udp4(hostB, hostA, 20, 1, 40))
	f.Add(uint8(acc2), udp4(bcast, hostA, 0, 1, 4))
	f.Add(uint8(up0), wrap(vtep2, own(), 100, good, nil))
	f.Add(uint8(up1), wrap(vtep3, own(), 200, good, &overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpRTTRequest}))
	f.Add(uint8(up1), wrap(vtep3, own(), 200, good, nil)[:60])
	link := make([]byte, overlay.LinkMessageLen)
	overlay.EncodeLink(link, gwMAC, ownMAC, &overlay.Fabric{Capable: true, Scheme: talkerWire, Opcode: overlay.OpExplore, Shim: true})
	f.Add(uint8(up0), link)
	f.Add(uint8(up0), wrap(vtep6, own6, 100, good, nil))
	f.Add(uint8(up1), wrap(vtep6, own6, 200, good, &overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpRTTRequest}))
	rigs := []*rig{newRig(f, fuzzConfig(leafConfig()), leafTables()), newRig(f, fuzzConfig(leafConfig6()), leafTables6())}
	for _, r := range rigs {
		r.talk(&talker{Policy: r.w.leaf.classes[0].Policy, at: reorder.Never})
	}
	f.Fuzz(func(t *testing.T, port uint8, b []byte) {
		if len(b) > 1792 {
			return
		}
		for _, r := range rigs {
			r.t = t
			r.send(PortID(port)%5, b, b)
		}
	})
}

// FuzzSpine does the same to a spine, without a scheme and with one.
func FuzzSpine(f *testing.F) {
	f.Add(viaSpine(vtep2, 1, nil))
	f.Add(viaSpine(vtep3, 2, &overlay.Fabric{Capable: true, Path: 3}))
	f.Add(viaSpine(vtep3, 2, &overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpClear})[:50])
	scheme := fuzzConfig(spineConfig())
	scheme.Scheme = "drill"
	f.Add(viaSpine6(vtep6, 2, &overlay.Fabric{Capable: true, Path: 3}))
	rigs := []*rig{newRig(f, fuzzConfig(spineConfig()), spineTables6()), newRig(f, scheme, spineTables6())}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1792 {
			return
		}
		for _, r := range rigs {
			r.t = t
			r.send(dn0, b, b)
		}
	})
}

// fuzzConfig is c with less memory, so that a run is cheap.
func fuzzConfig(c Config) Config {
	c.RingSize, c.FDBSize = 256, 64
	return c
}
