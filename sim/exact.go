package sim

import (
	"encoding/binary"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/traffic"
)

// headers are what the packets of a flow have in common, in the direction of its data.
type headers struct {
	srcPort, dstPort uint16
	proto            uint8
}

// reserve gives a flow one of the source ports that its host keeps for flows of that
// size, if the scheme goes by such ports. On a persistent connection the first flow's
// size decides.
func (r *run) reserve(f *traffic.Flow, t traffic.Tuple) traffic.Tuple {
	by, ok := r.spec.Keys.Params.(balance.Reserver)
	if !ok || t.Proto != overlay.ProtoTCP {
		return t
	}
	if ports := by.Reserves(f.Bytes); ports.Number() > 0 {
		t.SrcPort = ports.First + uint16(f.Key%uint64(ports.Number()))
	}
	return t
}

// remember keeps a flow's headers, if the scheme wants to know them.
func (r *run) remember(id network.FlowID, t traffic.Tuple) {
	if !balance.Find(r.spec.Scheme).Exact {
		return
	}
	for int(id) >= len(r.headers) {
		r.headers = append(r.headers, headers{})
	}
	r.headers[id] = headers{t.SrcPort, t.DstPort, t.Proto}
}

// classify keeps which class a flow belongs to, if there are several.
func (r *run) classify(id network.FlowID, f *traffic.Flow) {
	if len(r.spec.Classes) == 0 {
		return
	}
	for int(id) >= len(r.classes) {
		r.classes = append(r.classes, 0)
	}
	r.classes[id] = uint8(len(r.spec.Classes))
	for i := range r.spec.Classes {
		if r.spec.Workloads[f.Tag].Name == r.spec.Classes[i].Workload {
			r.classes[id] = uint8(i)
		}
	}
}

// classOf is node.Config.ClassOf.
func (r *run) classOf(p *network.Packet) int { return int(r.classes[p.Flow]) }

// exact is what a leaf reads of a packet's headers (node.Config.Exact). Of TCP's packets
// without data, those before any data are a handshake's.
func (r *run) exact(p *network.Packet, x *balance.Exact) {
	h := r.headers[p.Flow]
	x.Key = overlay.FlowKey{Version: 4, Proto: h.proto, SrcPort: h.srcPort, DstPort: h.dstPort}
	if p.Kind != network.Data {
		x.Key.SrcPort, x.Key.DstPort = h.dstPort, h.srcPort
	}
	binary.BigEndian.PutUint32(x.Key.Src[:], uint32(p.Src))
	binary.BigEndian.PutUint32(x.Key.Dst[:], uint32(p.Dst))
	x.TCPFlags = 0
	if h.proto != overlay.ProtoTCP {
		return
	}
	x.TCPFlags = overlay.TCPAck
	switch {
	case p.Kind == network.Data && p.Len == 0:
		x.TCPFlags = overlay.TCPSyn
	case p.Kind == network.Ack && p.Seq == 0 && p.NBlocks == 0:
		x.TCPFlags |= overlay.TCPSyn
	}
}
