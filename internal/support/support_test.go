package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/doctor"
)

// node is one on another machine, which answers everything with its name.
type node string

func (n node) Get(context.Context, string, url.Values) (json.RawMessage, error) {
	return json.Marshal(admin.Status{Name: string(n), Role: "spined"})
}

// Each node's folder has its own answers, by whatever name the inventory has it.
func TestEachNodeIsAskedItself(t *testing.T) {
	targets := []doctor.Target{{Name: "rack-1", Asker: node("S0")}, {Name: "rack-2", Asker: node("S1")}}
	var b bytes.Buffer
	if _, err := Write(t.Context(), &b, targets, Options{Name: "support"}); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		texts[h.Name] = string(text)
	}
	for _, name := range []string{"S0", "S1"} {
		if text := texts["support/nodes/"+name+"/status.json"]; !strings.Contains(text, `"name":"`+name+`"`) {
			t.Errorf("%s says %s", name, text)
		}
	}
}
