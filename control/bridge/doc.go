// Package bridge mirrors the kernel's leaf: bridges, their ports and VLANs, VXLAN devices
// and forwarding entries. It says which networks, ports and addresses a data plane can
// forward for, and why the rest is left to the kernel (decision 0025).
//
// [Derive] makes a [Model] of links and what is on them. A [Mirror] follows the kernel and
// gives a [Sink] the model, and each address that is usable.
//
// The package writes nothing to the kernel, and knows nothing of a data plane.
package bridge
