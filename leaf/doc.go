// Package leaf holds what a leaf does with a packet, and what a spine does with
// one: written once, for the data plane and for the simulator, which drive it.
//
// # A packet that departs
//
// The driver knows the packet's flow hash, its class and the leaf it goes to. It
// collects the packets of a class in a vector, and has [Leaf.Choose] give each of
// them its path. [Leaf.Depart] then fills the fabric's header.
//
// # A packet that arrives
//
// [Leaf.Accept] reads the fabric's header of whatever a known peer has sent, and
// says what kind of packet it is. Tenants' packets with a scheme's shim go through
// [Leaf.Arrive], a vector at a time: the scheme's receiver says which have to
// wait. Messages go through [Leaf.Handle]. What there is to send in consequence is
// in an [Output].
//
// # Time
//
// [Leaf.Deadline] says when [Leaf.Tick] is to be called: it sends HELLOs, ends what
// waits for too long, and wakes the schemes that ask for it.
//
// A Leaf belongs to one worker. What the workers of a leaf share is in [Shared].
// The driver keeps what is not a decision: headers' bytes, forwarding tables,
// queues, buffers and clocks.
package leaf
