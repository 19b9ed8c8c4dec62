// Package roce makes and understands traffic of the shape that RoCEv2 has on the
// wire (InfiniBand Architecture Specification, volume 1, with Annex A17): messages
// of RDMA WRITE, cut into packets with Base Transport Headers and packet sequence
// numbers, acknowledged, and recovered by Go-Back-N as RDMA NICs do it. It is
// sans-I/O: times are arguments, packets bytes of UDP payload; sockets are its
// driver's. No NIC is meant to take part: requests carry what measurements need in
// the place of data, and there is no connection set-up.
package roce
