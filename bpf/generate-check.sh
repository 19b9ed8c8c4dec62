#!/bin/sh
# Rebuilds the XDP object and its Go bindings elsewhere and compares them with
# the committed ones. The bytes depend on the compiler; the committed object
# is from Debian 12's clang 14.
set -eu

want=14
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for tool in clang llvm-strip; do
	if ! command -v "$tool" >/dev/null; then
		echo "generate-check: $tool is missing: apt-get install clang llvm libbpf-dev" >&2
		exit 1
	fi
done
have=$(clang -dumpversion)
echo "generate-check: clang $have (the committed object is from clang $want of Debian 12)"

mkdir "$tmp/bpf"
cp "$here/../go.mod" "$here/../go.sum" "$tmp"
cp "$here/doc.go" "$here/loom.c" "$here/loom.h" "$here/kernel.h" "$here/fast.h" "$here/fast_leaf.h" "$here/fast_access.h" "$tmp/bpf"
(cd "$tmp" && go generate ./bpf)

status=0
for file in loom_bpfel.o loom_bpfel.go; do
	if ! cmp "$here/$file" "$tmp/bpf/$file"; then
		status=1
	fi
done
if [ $status -ne 0 ]; then
	case $have in
	"$want".*) echo "generate-check: run 'go generate ./bpf' and commit the result" >&2 ;;
	*) echo "generate-check: the difference may come from the compiler: compare with clang $want" >&2 ;;
	esac
	exit 1
fi
echo "generate-check: bpf/ is up to date"
