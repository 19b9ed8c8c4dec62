// Package rdma runs real RDMA clients over a fabric of Loom: two small virtual
// machines with Soft-RoCE (rdma_rxe) whose network devices are access ports of
// two leaves. See README.md; `make test-rdma` runs it. The test of the fabric is built
// with the tag rdma, since it needs QEMU and takes minutes.
package rdma
