package rdma

import (
	"testing"

	"github.com/loomfabric/loom/config/fabric"
)

// TestFabricFile: the file is good, which the test that uses it says where there is QEMU
// only.
func TestFabricFile(t *testing.T) {
	if _, err := fabric.Load("fabric.yaml"); err != nil {
		t.Error(err)
	}
}
