// Package node has the simulator's switches: a [Leaf] and a [Spine] drive the
// algorithms of packages balance, congestion and overlay as the data plane
// drives them, in the same order, one packet a vector. They decide nothing
// themselves. Ports, queues and links are package network's; which links there
// are, and what routes follow from their state, is package topo's.
package node
