// Package reorder keeps frames back until they may go on in order. It holds
// the bounded queues that this takes. It does no I/O, reads no clock and does
// not know what a frame is.
package reorder
