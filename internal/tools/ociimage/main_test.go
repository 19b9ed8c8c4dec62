package main

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// program writes the least that is an ELF file: a header, and a program header if it needs
// a loader.
func program(t *testing.T, machine uint16, loader bool) string {
	t.Helper()
	b := make([]byte, 64+56)
	copy(b, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(b[16:], 2)
	binary.LittleEndian.PutUint16(b[18:], machine)
	binary.LittleEndian.PutUint32(b[20:], 1)
	binary.LittleEndian.PutUint64(b[32:], 64)
	binary.LittleEndian.PutUint16(b[52:], 64)
	binary.LittleEndian.PutUint16(b[54:], 56)
	if loader {
		binary.LittleEndian.PutUint16(b[56:], 1)
		binary.LittleEndian.PutUint32(b[64:], 3) // PT_INTERP
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

const amd64, arm64 = 62, 183

func TestImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "oci")
	leafd := program(t, amd64, false)
	var digests []string
	for range 2 { // the second one replaces the first
		if err := run(dir, "v1.2.3", "amd64", []string{"leafd=" + leafd, "loomctl=" + leafd}); err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Error(err)
		}
		m, err := index.IndexManifest()
		if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Platform.String() != "linux/amd64" {
			t.Fatalf("%+v, %v", m, err)
		}
		digests = append(digests, m.Manifests[0].Digest.String())
		image, err := index.Image(m.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		c, err := image.ConfigFile()
		if err != nil || !slices.Equal(c.Config.Cmd, []string{"/usr/bin/leafd", "run", "-c", "/etc/loom/leafd.yaml"}) || c.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
			t.Errorf("config %+v, %v", c, err)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		text, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		modes := make(map[string]int64)
		for r := tar.NewReader(text); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			modes[h.Name] = h.Mode
		}
		if modes["usr/bin/leafd"] != 0o755 || modes["usr/bin/loomctl"] != 0o755 || modes["tmp/"] != 0o1777 || modes["run/loom/"] != 0o755 {
			t.Errorf("the image has %v", modes)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("the same programs make different images: %v", digests)
	}
}

func TestRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ program, want string }{
		{"leafd=" + program(t, amd64, true), "CGO_ENABLED=0"},
		{"leafd=" + program(t, arm64, false), "GOARCH=amd64"},
		{"leafd=" + text, "make build"},
		{"leafd=" + text + "x", "no such file"},
		{"usr/leafd=" + text, "is not NAME=FILE"},
		{"leafd", "is not NAME=FILE"},
	} {
		dir := filepath.Join(t.TempDir(), "oci")
		if err := run(dir, "v1", "amd64", []string{tt.program}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.program, err, tt.want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: something was written all the same", tt.program)
		}
	}
}
