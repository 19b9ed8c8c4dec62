package yamlfile

import (
	"fmt"
	"slices"
	"strings"
)

// Choose returns the position of a word in a list. What a word is for is part of
// the error: "profile".
func Choose[T ~[]byte | ~string](what string, word T, words []string) (int, error) {
	i := slices.Index(words, string(word))
	if i < 0 {
		return 0, fmt.Errorf("%s %q does not exist; use %s", what, word, OrList(words))
	}
	return i, nil
}

// OrList writes "a, b or c".
func OrList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Nearest returns the name that a mistyped one most likely means: at most two
// edits away, or a part of it; "": none is near.
func Nearest(key string, names []string) string {
	best, bestDist := "", 3
	for _, n := range names {
		dist := distance(strings.ToLower(key), n)
		if len(key) > 2 && (strings.Contains(n, key) || strings.Contains(key, n)) {
			dist = min(dist, 2)
		}
		if dist < bestDist && dist < len(n) {
			best, bestDist = n, dist
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost++
			}
			prev, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
