// Package proto is what the RDMA test and the program in its virtual machines
// say to each other: JSON values over a virtio serial port, requests one way and
// replies the other. Several requests may be under way at a time.
package proto

import "time"

// Port is the name of the virtio serial port.
const Port = "loom"

// Keys of the guest's settings on the kernel's command line.
const (
	KeyAddr = "loom.addr" // address and prefix length of eth0
	KeyMTU  = "loom.mtu"
)

// Files in the guest's first file system that the host writes and the guest reads.
const (
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
