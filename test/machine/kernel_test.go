package machine

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// bzImage makes a kernel image around a payload.
func bzImage(sects byte, payload []byte) []byte {
	real := int(sects)
	if sects == 0 {
		real = 4
	}
	const offset = 100 // of the payload, behind some code
	b := make([]byte, (real+1)*bzSector+offset)
	b[bzSetupSects] = sects
	copy(b[bzMagic:], "HdrS")
	binary.LittleEndian.PutUint32(b[bzPayload:], offset)
	binary.LittleEndian.PutUint32(b[bzPayloadLength:], uint32(len(payload)))
	return append(append(b, payload...), "what follows"...)
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecompressKernel(t *testing.T) {
	const kernel = "\x7fELF and what a kernel is made of"
	good := zipped(t, kernel)
	long := bzImage(7, good)
	binary.LittleEndian.PutUint32(long[bzPayloadLength:], uint32(len(long)))
	for _, tc := range []struct {
		name  string
		image []byte
		err   string // "": none
	}{
		{"gzip", bzImage(7, good), ""},
		{"gzip, as many sectors as ever", bzImage(0, good), ""},
		{"no kernel", []byte("MZ"), "not a bzImage"},
		{"no header", make([]byte, 4096), "not a bzImage"},
		{"cut off", bzImage(7, good)[:8*bzSector+110], "a payload of"},
		{"a length beyond the end", long, "a payload of"},
		{"unknown compression", bzImage(7, []byte("LZ4 or so, and more")), "unknown compression"},
		{"no ELF inside", bzImage(7, zipped(t, "MZ: an EFI program")), "not an ELF"},
		{"broken inside", bzImage(7, good[:len(good)-10]), "unexpected EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decompressKernel(tc.image)
			if tc.err == "" && (err != nil || string(got) != kernel) {
				t.Errorf("%q, %v", got, err)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

func TestModuleOrder(t *testing.T) {
	const index = `kernel/net/core/failover.ko:
kernel/drivers/net/net_failover.ko.xz: kernel/net/core/failover.ko
kernel/drivers/net/virtio_net.ko.xz: kernel/drivers/net/net_failover.ko.xz kernel/net/core/failover.ko
kernel/drivers/a-b.ko: kernel/drivers/c_d.ko
kernel/drivers/c_d.ko:
kernel/x.ko: kernel/y.ko
kernel/y.ko: kernel/x.ko
kernel/drivers/uses.ko: kernel/gone.ko
`
	const builtin = "kernel/drivers/virtio/virtio.ko\n"
	for _, tc := range []struct {
		names []string
		want  []string // base names
		err   string
	}{
		{[]string{"virtio_net"}, []string{"failover.ko", "net_failover.ko.xz", "virtio_net.ko.xz"}, ""},
		{[]string{"virtio", "a_b", "failover", "virtio_net"}, []string{"c_d.ko", "a-b.ko", "failover.ko", "net_failover.ko.xz", "virtio_net.ko.xz"}, ""},
		{[]string{"c-d"}, []string{"c_d.ko"}, ""},
		{[]string{"virtio"}, nil, ""},
		{[]string{"nvme"}, nil, "no module nvme"},
		{[]string{"uses"}, nil, "no module gone"},
		{[]string{"x"}, nil, "needs itself"},
	} {
		files, err := moduleOrder(index, builtin, tc.names)
		var got []string
		for _, f := range files {
			got = append(got, f[strings.LastIndexByte(f, '/')+1:])
		}
		if tc.err == "" && (err != nil || !slices.Equal(got, tc.want)) {
			t.Errorf("%v: %v, %v, want %v", tc.names, got, err, tc.want)
		}
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%v: error %v, want %q", tc.names, err, tc.err)
		}
	}
}
