package support

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/doctor"
)

func TestScrub(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("# ours\nabcdefgh-long-word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newScrubber()
	n := &doctor.Node{Machine: &doctor.Machine{}}
	n.Parameters.KeyFile = keys
	s.learn(n)
	for text, want := range map[string]string{
		"name: L0\ncontrol_key_file: /etc/loom/keys\n":                                   "name: L0\ncontrol_key_file: /etc/loom/keys\n",
		"log: it is abcdefgh-long-word.":                                                 "log: it is REMOVED.",
		"# password: hunter2":                                                            "# password: REMOVED",
		`{"api_key":"a b c","port":4789}`:                                                `{"api_key":REMOVED,"port":4789}`,
		"remote: https://joe:pass@example.org/":                                          "remote: https://joe:REMOVED@example.org/",
		"Authorization: Bearer abcdefgh1234":                                             "Authorization: Bearer REMOVED",
		"key 00112233445566778899aabbccddeeff.":                                          "key REMOVED.",
		"x\n-----BEGIN EC PRIVATE KEY-----\nAAAA\nBBBB\n-----END EC PRIVATE KEY-----\ny": "x\nREMOVED\ny",
		"-----BEGIN PRIVATE KEY-----\nAAAA\ncut off":                                     "REMOVED",
		`loom_drops_total{reason="bad_seal"} 4`:                                          `loom_drops_total{reason="bad_seal"} 4`,
		`{"control_key_file":"none","mac":"02:00:00:00:00:01","flow":"f526b15e","key_file":"/etc/loom/k"}`: `{"control_key_file":"none","mac":"02:00:00:00:00:01","flow":"f526b15e","key_file":"/etc/loom/k"}`,
		"alias token=s3cr3t mode DEFAULT": "alias token=REMOVED mode DEFAULT",
		"link/ether 52:39:5b:e2:ea:ad brd ff:ff:ff:ff:ff:ff link-netns loom-doc-L0 promiscuity 0 maxmtu 65535": "link/ether 52:39:5b:e2:ea:ad brd ff:ff:ff:ff:ff:ff link-netns loom-doc-L0 promiscuity 0 maxmtu 65535",
	} {
		if got := string(s.clean([]byte(text))); got != want {
			t.Errorf("%q\nbecomes %q,\nwant    %q", text, got, want)
		}
	}
	if strings.Contains(removed, " ") {
		t.Error("a secret's place is not one word")
	}
}
