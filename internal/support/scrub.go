package support

import (
	"bytes"
	"os"
	"regexp"

	"github.com/loomfabric/loom/internal/doctor"
)

// scrubber takes secrets out of texts: those that it has learned, and what looks like one.
type scrubber struct{ secrets [][]byte }

func newScrubber() *scrubber { return &scrubber{} }

// removed stands in the place of a secret.
const removed = "REMOVED"

// shortest is the shortest text that is taken for a secret wherever it stands.
const shortest = 8

// learn takes the words of a node's key file for secrets.
func (s *scrubber) learn(n *doctor.Node) {
	if n.Machine == nil || n.Parameters.KeyFile == "" {
		return
	}
	text, err := os.ReadFile(n.Parameters.KeyFile)
	if err != nil {
		return // then they can only be known by their form
	}
	for _, word := range bytes.Fields(text) {
		if len(word) >= shortest {
			s.secrets = append(s.secrets, word)
		}
	}
}

// What looks like a secret.
var (
	// A key of YAML, JSON or a shell whose name says so. One that ends in _file is a path.
	named = regexp.MustCompile(`(?i)((?:^|[^a-z0-9])["']?[a-z0-9_.-]*(?:password|passwd|passphrase|secret|token|credential|private[_-]?key|api[_-]?key|control[_-]?keys?|psk)["']?\s*[:=]\s*)("[^"\n]*"|'[^'\n]*'|[^\s,}\]]+)`)
	// A key of control packets (control_key_file), or one of 256 bits.
	hexadecimal = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{32}|[0-9a-f]{64})\b`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9+/_.=-]{8,}`)
	userinfo    = regexp.MustCompile(`(://[^/\s:@]+:)[^/\s@]+@`)
	pem         = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`)
)

// clean returns a text without secrets.
func (s *scrubber) clean(text []byte) []byte {
	for _, secret := range s.secrets {
		text = bytes.ReplaceAll(text, secret, []byte(removed))
	}
	text = pem.ReplaceAll(text, []byte(removed))
	text = named.ReplaceAll(text, []byte("${1}"+removed))
	text = hexadecimal.ReplaceAll(text, []byte(removed))
	text = bearer.ReplaceAll(text, []byte("${1} "+removed))
	return userinfo.ReplaceAll(text, []byte("${1}"+removed+"@"))
}
