#!/usr/bin/env bash
# Runs every fuzz target for the given time. A failing input is written to the
# package's testdata/fuzz and stays there as a seed.
set -euo pipefail
duration=${1:-20s}
go=${GO:-go}
cd "$(dirname "$0")/../.."
"$go" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./... | while read -r dir; do
	grep -lqE '^func Fuzz' "$dir"/*_test.go || continue
	targets=$(cd "$dir" && "$go" test -list '^Fuzz' . | grep '^Fuzz')
	for target in $targets; do
		echo "== ${dir#"$PWD"/} $target"
		(cd "$dir" && "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" . </dev/null)
	done
done
