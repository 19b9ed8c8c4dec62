package snapshot

import (
	"bytes"
	"strings"
	"testing"
)

func sample() *Writer {
	var w Writer
	w.Begin("numbers", 3)
	w.U8(1)
	w.U16(2)
	w.U32(3)
	w.U64(4)
	w.Bool(true)
	w.End()
	w.Begin("texts", 1)
	w.String("leaf")
	at := w.Open()
	w.U8(9)
	w.U8(8)
	w.Close(at)
	w.U32(2)
	w.U16(5)
	w.U16(6)
	w.End()
	w.Begin("empty", 7)
	w.End()
	return &w
}

func TestRoundTrip(t *testing.T) {
	all, err := Sections(sample().Bytes())
	if err != nil || len(all) != 3 {
		t.Fatalf("%d sections, %v", len(all), err)
	}
	if s := all[0]; s.Name != "numbers" || s.Version != 3 || s.Broken != nil {
		t.Errorf("%+v", s)
	}
	r := NewReader(all[0].Body)
	if a, b, c, d, e := r.U8(), r.U16(), r.U32(), r.U64(), r.Bool(); a != 1 || b != 2 || c != 3 || d != 4 || !e || r.Done() != nil {
		t.Errorf("%d %d %d %d %v, %v", a, b, c, d, e, r.Done())
	}
	r = NewReader(all[1].Body)
	if s, b, n := r.String(), r.Blob(), r.Count(2); s != "leaf" || !bytes.Equal(b, []byte{9, 8}) || n != 2 || r.U16() != 5 || r.U16() != 6 || r.Done() != nil {
		t.Errorf("%q %v %d, %v", s, b, n, r.Done())
	}
	if s := all[2]; s.Name != "empty" || s.Version != 7 || len(s.Body) != 0 || s.Broken != nil {
		t.Errorf("%+v", s)
	}
	if all, err := Sections((&Writer{}).Bytes()); len(all) != 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
}

// Whatever byte is wrong, the section is broken or the snapshot is: nothing of it is
// read as something else.
func TestEveryByteCounts(t *testing.T) {
	good := sample().Bytes()
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		all, err := Sections(bad)
		same := err == nil && len(all) == 3
		for k, name := range []string{"numbers", "texts", "empty"} {
			same = same && all[k].Broken == nil && all[k].Name == name && all[k].Version == []uint16{3, 1, 7}[k]
		}
		if same {
			t.Errorf("byte %d was changed, and nobody noticed", i)
		}
	}
	for n := range good {
		if all, err := Sections(good[:n]); err == nil && len(all) == 3 {
			t.Errorf("cut at %d of %d bytes, and nobody noticed", n, len(good))
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for want, read := range map[string]func(*Reader){
		"3 bytes are left where 4": func(r *Reader) { r.U32() },
		"3 bytes are left at":      func(*Reader) {},
		"neither true nor false":   func(r *Reader) { r.Bool() },
		"do not fit the 1":         func(r *Reader) { r.b = append([]byte{200, 0, 0, 0}, 1); r.Count(1) },
	} {
		r := NewReader([]byte{7, 7, 7})
		read(r)
		if err := r.Done(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if r.U64() != 0 || r.Blob() != nil || r.String() != "" || r.Count(1) != 0 || r.Bool() {
			t.Errorf("%q: something was read after the error", want)
		}
	}
}

func FuzzSections(f *testing.F) {
	f.Add(sample().Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _ := Sections(b)
		for _, s := range all {
			r := NewReader(s.Body)
			for r.Err() == nil && r.Len() > 0 {
				for range r.Count(3) {
					r.U16()
					r.U8()
				}
				_ = r.String()
				r.Bool()
				r.U64()
			}
			if len(s.Body) > len(b) {
				t.Fatal("a section is longer than the snapshot")
			}
		}
	})
}
