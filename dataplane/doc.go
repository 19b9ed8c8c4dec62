// Package dataplane is the part of a leaf or spine that touches frames: ports,
// workers, the pipelines between them, and the egress of each port. A worker is
// one OS thread that serves one queue of every port with memory of its own and
// runs each burst to completion.
//
// It must not decide where routes lead or what is configured (package control
// publishes that as [Tables]), and it implements no algorithm of its own:
// headers are package overlay's, schemes package balance's, meters package
// congestion's.
package dataplane
