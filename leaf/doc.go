// Package leaf holds what a leaf does with a packet, and what a spine does with
// one: written once, for the data plane and for the simulator.
package leaf
