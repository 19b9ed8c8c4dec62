package packages

import (
	"strings"
	"testing"

	"github.com/loomfabric/loom/config"
)

// checkConfig reads a leaf's file of the manifests as leafd does.
func checkConfig(t *testing.T, name, text string) {
	t.Helper()
	if c, err := config.ParseLeaf(name, []byte(text), nil); err != nil || c.Name+".yaml" != name {
		t.Errorf("%s: %v; its node's name is that of the file: %s", name, err, strings.TrimSuffix(name, ".yaml"))
	}
}
