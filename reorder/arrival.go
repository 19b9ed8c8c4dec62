package reorder

import (
	"time"

	"github.com/loomfabric/loom/overlay"
)

// Arrival is what a receiver is told of a packet that came out of the fabric, and
// its answer.
type Arrival struct {
	Hash uint32 // of the flow
	Len  uint32 // of the tenant's frame, bytes
	Leaf uint16 // that sent it
	Port uint16 // egress port; packets for several ports have one that stands for all of them
	CE   bool   // a link of the fabric set CE in the outer IP header
	// Express says that the packet may have overtaken others of its path, because the
	// fabric's queues let it go first.
	Express bool
	Uplink  uint8 // that it came by; the leaf fills it in
	Fabric  overlay.Fabric
	// Key and TCPFlags are what the headers say of the flow exactly. They are meant if
	// the scheme of a packet with the shim wants to know.
	Key      overlay.FlowKey
	TCPFlags uint8

	// The answer.
	Verdict Verdict
	Drain   uint16 // the queue to send on, if the verdict says so
	Hold    uint16 // the queue that the packet is in, if the verdict says so
	// Also are queues to send on behind Drain, in this order. The slice is the
	// receiver's, until it is called again.
	Also []uint16
}

// Verdict is what a driver does with a packet that a receiver saw.
type Verdict uint8

// The verdicts. A queue is sent on whole, in its order, before the driver looks at
// the next packet's verdict, into the same egress queue that the packet goes to:
// there stand the flow's packets that came before.
const (
	Pass      Verdict = iota // send the packet on
	Hold                     // keep the packet in queue Hold
	PassDrain                // send the packet on, and behind it what queue Drain held
	DrainPass                // send on what queue Drain held, and behind it the packet
	DrainHold                // send on what queue Drain held; keep the packet in queue Hold
	Discard                  // the packet is a copy of one that has come
)

// Held reports whether the packet is kept.
func (v Verdict) Held() bool { return v == Hold || v == DrainHold }

// DrainBefore reports whether a queue goes before the packet.
func (v Verdict) DrainBefore() bool { return v == DrainPass || v == DrainHold }

// DrainAfter reports whether a queue goes behind the packet.
func (v Verdict) DrainAfter() bool { return v == PassDrain }

// Times are what follows from measured round trips; 0: does not follow.
type Times struct {
	Reply         time.Duration `json:"reply_ns" stat:"time{time=reply},seen" help:"Times in force that were derived from round trips, by their configuration keys. One is shown once it was derived."`
	Inactive      time.Duration `json:"inactive_ns" stat:"time{time=inactive},seen"`
	ResumeExtra   time.Duration `json:"resume_extra_ns" stat:"time{time=resume_extra},seen"`
	ResumeDefault time.Duration `json:"resume_default_ns" stat:"time{time=resume_default},seen"`
	MaxHold       time.Duration `json:"max_hold_ns" stat:"time{time=max_hold},seen"`
	FlowletGap    time.Duration `json:"flowlet_gap_ns" stat:"time{time=flowlet_gap},seen"`
}
