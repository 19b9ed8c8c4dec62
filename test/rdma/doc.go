// Package rdma runs real RDMA clients over a fabric of Loom: two small virtual
// machines with Soft-RoCE (rdma_rxe) whose network devices are access ports of
// two leaves. See README.md; `make test-rdma` runs it. The package builds what
// the machines boot, starts and commands them; the test itself is built with the
// tag rdma, since it needs QEMU and takes minutes.
package rdma
