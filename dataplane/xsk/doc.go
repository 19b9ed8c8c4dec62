// Package xsk is Loom's AF_XDP: one UMEM shared by the sockets of many
// interfaces, the four rings of each socket, and a pool that knows the owner of
// each frame. It moves descriptors and makes system calls; it must not look into
// frames, know ports or routes, or decide anything about forwarding.
//
// The types that the packet path uses ([Socket], [Pool]) are owned by one
// worker and not safe for concurrent use. The packet path ([Socket.Receive],
// [Socket.Transmit], [Socket.Fill], [Socket.Complete], [Socket.Kick], and the
// methods of Pool except [Pool.Reclaim]) does not allocate, lock or log.
//
// Addresses are byte offsets into [Umem.Area], in the kernel's aligned-chunk
// mode: a frame is FrameSize bytes at a multiple of FrameSize. A received
// descriptor's address is that of the packet's first byte, [Headroom] or more
// bytes into the frame. To transmit, any address inside the frame may be used;
// the completion reports the frame's address as it was transmitted, and the
// kernel masks filled addresses to the frame's start.
package xsk
