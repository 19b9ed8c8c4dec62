// Package proto is what a test and the program in its virtual machines say to each other: JSON
// values over a virtio serial port, requests one way and replies the other. Several requests may be under way at a time.
package proto

import "time"

// Port is the name of the virtio serial port.
const Port = "loom"

// Names in the guest's first file system.
const (
	Program    = "/guest"        // the guest program
	ModuleDir  = "/modules"      // kernel modules, flat
	ModuleList = "/modules.list" // their file names, in the order to load them
)

// Request asks the guest for one operation.
type Request struct {
	ID int `json:"id"` // from 1 on; the reply has it, too
	// Argv is a program to run, with its arguments, for at most Timeout.
	Argv    []string      `json:"argv,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Glob names files to read instead.
	Glob string `json:"glob,omitempty"`
	// Put names a file to write Text to instead.
	Put  string `json:"put,omitempty"`
	Text string `json:"text,omitempty"`
}

// Reply answers a request; the one with ID 0 says that the guest is ready.
type Reply struct {
	ID int `json:"id"`
	// Err says why there is no other answer: the guest could not get ready, a
	// program could not be started, ran into its time-out or failed.
	Err    string            `json:"err,omitempty"`
	Output string            `json:"output,omitempty"` // of the program, both streams
	Files  map[string]string `json:"files,omitempty"`  // contents by base name
}
