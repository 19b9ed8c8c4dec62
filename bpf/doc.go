// Package bpf loads and attaches the XDP classifier that decides which frames
// go to Loom's AF_XDP sockets and which stay with the kernel. It must not look
// at frames itself: that is loom.c, whose flow dissection equals
// [github.com/loomfabric/loom/overlay.Dissect].
package bpf

//go:generate go tool bpf2go -target bpfel -cflags "-O2 -g -Wall -Wextra -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu" loom loom.c
