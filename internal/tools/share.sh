#!/bin/sh
# Writes what packages have of programs beside themselves: OUT/share goes to /usr/share, and
# OUT/zsh where the distribution's zsh looks. It is run at the top of the repository.
#   share.sh BIN OUT      BIN: a folder with the programs, for this machine
set -eu
bin=$1 out=$2
mkdir -p "$out/share/bash-completion/completions" "$out/share/fish/vendor_completions.d" "$out/zsh"
for main in cmd/*/main.go; do # all that are built into BIN
	p=$(basename "$(dirname "$main")")
	"$bin/$p" completion bash > "$out/share/bash-completion/completions/$p"
	"$bin/$p" completion zsh > "$out/zsh/_$p"
	"$bin/$p" completion fish > "$out/share/fish/vendor_completions.d/$p.fish"
	case $p in leafd | spined) section=8 ;; *) section=1 ;; esac
	"$bin/$p" man "$out/share/man/man$section"
done
gzip -9n "$out"/share/man/man?/*
