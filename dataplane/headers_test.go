package dataplane

import (
	"encoding/binary"

	"github.com/loomfabric/loom/internal/mono"
)

// sum returns the one's complement sum of an IPv4 header (RFC 1071).
func sum(ip []byte) (s uint32) {
	for at := 0; at < int(ip[0]&0xf)*4; at += 2 {
		s += uint32(binary.BigEndian.Uint16(ip[at:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return s
}

// checksumOK reports whether an IPv4 header's checksum holds.
func checksumOK(ip []byte) bool { return sum(ip) == 0xffff }

// fixChecksum writes the checksum of an IPv4 header anew.
func fixChecksum(ip []byte) {
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum(ip)))
}

// toLeaf returns the metric that a worker knows of the paths to leaf 0 by an uplink.
func toLeaf(w *worker, uplink uint8, now mono.Time) uint8 {
	metric, _, _ := w.shared.leaf.To.Entry(0, uplink, now)
	return metric
}
