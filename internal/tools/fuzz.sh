#!/usr/bin/env bash
# Runs every fuzz target for the given time. A failing input is written to the
# package's testdata/fuzz and stays there as a seed.
set -euo pipefail
duration=${1:-20s}
go=${GO:-go}
cd "$(dirname "$0")/../.."
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# fuzz runs a target. On a busy machine the fuzzer may report its own deadline as a failure,
# with no failing input: then the target is run once more.
fuzz() { # DIR TARGET
	(cd "$1" && "$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$duration" . </dev/null 2>&1) | tee "$said"
}
ended() { grep -q 'context deadline exceeded' "$said" && ! grep -q 'Failing input' "$said"; }

"$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./... | while read -r dir; do
	grep -lqE '^func Fuzz' "$dir"/*_test.go || continue
	targets=$(cd "$dir" && "$go" test -list '^Fuzz' . | grep '^Fuzz')
	for target in $targets; do
		echo "== ${dir#"$PWD"/} $target"
		fuzz "$dir" "$target" || { ended && fuzz "$dir" "$target"; }
	done
done
