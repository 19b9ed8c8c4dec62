package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Keys that others can read are refused, and errors name the file and never the key.
func TestReadKeys(t *testing.T) {
	const key = "000102030405060708090a0b0c0d0e0f"
	file := filepath.Join(t.TempDir(), "control.key")
	write := func(text string, mode os.FileMode) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readKeys(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("no file: %v", err)
	}
	for _, tt := range []struct {
		text string
		mode os.FileMode
		want string
	}{{key, 0o604, "chmod o="}, {key + "00", 0o600, "line 1"}, {"", 0o600, "no key"}} {
		write(tt.text, tt.mode)
		_, err := readKeys(file)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), key) {
			t.Errorf("%q, mode %o: %v", tt.text, tt.mode, err)
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o640} {
		write(key+"\n", mode)
		if keys, err := readKeys(file); err != nil || len(keys) != 1 {
			t.Errorf("mode %o: %v, %d keys", mode, err, len(keys))
		}
	}
}
