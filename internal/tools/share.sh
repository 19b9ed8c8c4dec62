#!/bin/sh
# Writes what packages have of programs beside themselves: OUT/share goes to /usr/share, and
# OUT/zsh where the distribution's zsh looks.
#   share.sh BIN OUT      BIN: a folder with the programs, for this machine
set -eu
bin=$1 out=$2
mkdir -p "$out/share/bash-completion/completions" "$out/share/fish/vendor_completions.d" "$out/zsh"
for p in leafd spined loomctl loomlab; do
	"$bin/$p" completion bash > "$out/share/bash-completion/completions/$p"
	"$bin/$p" completion zsh > "$out/zsh/_$p"
	"$bin/$p" completion fish > "$out/share/fish/vendor_completions.d/$p.fish"
done
for p in leafd spined; do "$bin/$p" man "$out/share/man/man8"; done
for p in loomctl loomlab loomsim; do "$bin/$p" man "$out/share/man/man1"; done
gzip -9n "$out"/share/man/man?/*
