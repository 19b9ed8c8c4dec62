// Package vm runs leafd in virtual machines: on stock kernels of Debian, on virtio-net
// with several queues, a MAC filter and offloads, and under systemd. See README.md;
// `make test-vm` runs it. Its tests are built with the tag vm, since they need QEMU and
// take minutes.
package vm
