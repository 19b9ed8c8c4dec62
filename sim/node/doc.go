// Package node has the simulator's switches. A [Leaf] and a [Spine] have what is
// package leaf's decide about every packet, one packet a vector, and keep what is not
// a decision: ports, hosts, packets and time. Ports, queues and links are package
// network's; which links there are, and what routes follow from their state, is
// package topo's.
package node
