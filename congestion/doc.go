// Package congestion holds the state of CONGA (Alizadeh et al., SIGCOMM 2014,
// §3): the load of links ([DRE], [Meter]), the feedback that leaves exchange about
// their paths ([ToLeaf], [FromLeaf]), the active flowlets ([Flowlets]), and the
// rule that picks an uplink ([Decision]).
//
// It does no I/O and reads no clock: time is an argument, randomness is
// injected. DRE, Flowlets, FeedbackCursor and Decision belong to one worker. The
// workers of a node share Meter, ToLeaf and FromLeaf. These consist of atomic
// words, so that no worker waits; the last of two writers wins, which is enough
// for a measurement.
package congestion
