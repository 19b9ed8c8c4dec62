// Package congestion measures how busy links are, in the terms that fabric
// headers carry. It holds the link meter of CONGA §3.2. It does no I/O and
// reads no clock: time is an argument, and each value belongs to one worker.
package congestion
