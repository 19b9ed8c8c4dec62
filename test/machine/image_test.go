package machine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"testing"
)

// entry is what a naive reader finds in a cpio archive.
type entry struct {
	name string
	mode uint32
	data []byte
}

func readArchive(b []byte) (entries []entry, err error) {
	for at := 0; ; {
		if at%4 != 0 || len(b) < at+110 {
			return nil, fmt.Errorf("no header at %d of %d", at, len(b))
		}
		var f [13]uint32
		for i := range f {
			if _, err := fmt.Sscanf(string(b[at+6+8*i:at+14+8*i]), "%08X", &f[i]); err != nil {
				return nil, err
			}
		}
		if string(b[at:at+6]) != "070701" {
			return nil, fmt.Errorf("magic %q at %d", b[at:at+6], at)
		}
		size, length := int(f[6]), int(f[11])
		name := string(b[at+110 : at+110+length-1])
		data := (at + 110 + length + 3) &^ 3
		if name == "TRAILER!!!" {
			return entries, nil
		}
		entries = append(entries, entry{name, f[1], b[data : data+size]})
		at = (data + size + 3) &^ 3
	}
}

// TestArchive: what is put in comes out, whatever its length; each directory
// stands before what is in it, and nothing is there twice.
func TestArchive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	a := newArchive(&b)
	want := map[string][]byte{}
	for i := range 40 {
		name := fmt.Sprintf("/d%d/e%d/f%0*d", i%3, i%2, 1+i%5, i)
		data := make([]byte, rng.IntN(50))
		for j := range data {
			data[j] = byte(rng.Uint32())
		}
		want[name] = data
		a.put(name, regular|0o640, data)
		a.put(name, regular|0o600, []byte("again")) // stays what it was
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	entries, err := readArchive(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{".": true}
	files := 0
	for _, e := range entries {
		if seen[e.name] || !seen[path.Dir(e.name)] {
			t.Errorf("%s is there twice, or before its directory", e.name)
		}
		seen[e.name] = true
		if e.mode == 0o040755 {
			continue
		}
		files++
		if data, ok := want["/"+e.name]; !ok || !bytes.Equal(data, e.data) || e.mode != 0o100640 {
			t.Errorf("%s: mode %o, % x, want % x", e.name, e.mode, e.data, data)
		}
	}
	if files != len(want) {
		t.Errorf("%d files, want %d", files, len(want))
	}
}

// A file that cannot be read, or an archive that cannot be written, fails it.
func TestArchiveFails(t *testing.T) {
	missing := t.TempDir() + "/missing"
	for name, add := range map[string]func(i *Image){
		"file":    func(i *Image) { i.Add("/x", missing, 0o644) },
		"program": func(i *Image) { i.Program("/x", missing) },
		"tree":    func(i *Image) { i.Tree(missing) },
	} {
		i := &Image{*newArchive(&bytes.Buffer{})}
		add(i)
		i.File("/y", nil, 0o644)
		if err := i.close(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a %s that does not exist: error %v", name, err)
		}
	}
	a := newArchive(full{})
	a.put("/y", regular, nil)
	if err := a.close(); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
}

// TestTree: files, symbolic links and empty folders of a tree become those of the root,
// but for names that the image has already.
func TestTree(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(os.MkdirAll(dir+"/usr/bin", 0o755), os.MkdirAll(dir+"/proc", 0o755), os.Symlink("usr/bin", dir+"/bin"),
		os.WriteFile(dir+"/usr/bin/sh", []byte("a shell"), 0o755), os.WriteFile(dir+"/passwd", []byte("the tree's"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	i := &Image{*newArchive(&b)}
	i.File("/passwd", []byte("ours"), 0o600)
	i.Tree(dir)
	if err := i.close(); err != nil {
		t.Fatal(err)
	}
	entries, err := readArchive(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		got[e.name] = fmt.Sprintf("%o %s", e.mode, e.data)
	}
	want := map[string]string{
		"passwd": "100600 ours", "usr": "40755 ", "usr/bin": "40755 ", "usr/bin/sh": "100755 a shell", "bin": "120777 usr/bin", "proc": "40755 ",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

var errFull = errors.New("disk full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
