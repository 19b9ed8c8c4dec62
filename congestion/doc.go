// Package congestion holds the state of CONGA (Alizadeh et al., SIGCOMM 2014,
// §3): how busy links are ([DRE], [Meter]), what leaves told each other of
// their paths ([ToLeaf], [FromLeaf]), which flowlets are under way
// ([Flowlets]), and the rule that picks an uplink ([Decision]).
//
// It does no I/O and reads no clock: time is an argument, randomness is
// injected. DRE, Flowlets, FeedbackCursor and Decision belong to one worker.
// Meter, ToLeaf and FromLeaf are shared by the workers of a node, and made of
// atomic words only: nobody ever waits for anybody, and of two writers the last
// one wins, which is all that a measurement needs.
package congestion
