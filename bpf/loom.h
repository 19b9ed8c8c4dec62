/* SPDX-License-Identifier: Apache-2.0 */
/* What the XDP programs share with user space. The Go side is overlay.Meta
 * and verdict.go in this folder; tests compare the two.
 */
#ifndef LOOM_H
#define LOOM_H

/* Metadata directly before the frame, in native byte order. Offsets count from
 * the start of the frame that is described: on an uplink the inner frame, else
 * the frame itself.
 */
struct loom_meta {
	__u32 magic;
	__u32 hash;  /* flow hash; on a spine of the outer 5-tuple */
	__u16 vlan;  /* TCI of the first tag, if LOOM_VLAN */
	__u16 flags; /* LOOM_* */
	__u8 l3;     /* IP header, 0 if none */
	__u8 l4;     /* transport header, 0 unless LOOM_PORTS */
	__u8 inner;  /* uplink: start of the inner frame within the outer */
	__u8 pad;
};

#define LOOM_META_MAGIC 0x4C4F4F4D

#define LOOM_VLAN 0x01
#define LOOM_IPV4 0x02
#define LOOM_IPV6 0x04
#define LOOM_PORTS 0x08    /* the hash covers both ports */
#define LOOM_FRAGMENT 0x10
#define LOOM_ROCE 0x20     /* the hash covers the destination QP */

/* What became of a frame: exactly one of these is counted for each. */
enum loom_verdict {
	LOOM_REDIRECT,           /* to the socket, with metadata */
	LOOM_REDIRECT_NO_META,   /* to the socket, without */
	LOOM_PASS_NOT_OURS,      /* to the kernel: not VXLAN to an address of ours */
	LOOM_PASS_LINK_LOCAL,    /* to the kernel: LLDP, STP, LACP, ... */
	LOOM_PASS_NO_SOCKET,     /* to the kernel: nobody serves this queue */
	LOOM_REDIRECT_NEIGHBOUR, /* to the socket: a message of the node at the link's other end */
	LOOM_DROP_NO_SOCKET,     /* dropped: nobody serves this queue, and the port is closed */
	LOOM_DROP_NO_ROOM,       /* dropped: no room for the VLAN tag that the driver took off */
	/* Where the overlay is the kernel's, to the kernel: */
	LOOM_PASS_GROUP,         /* for all, or for a group */
	LOOM_PASS_NETWORK,       /* of a VLAN or a VNI that user space does not serve */
	LOOM_PASS_SOURCE,        /* the source is not known to be behind this port and VLAN */
	LOOM_PASS_DESTINATION,   /* the destination is not known; from the fabric: not behind a port of ours */
	LOOM_PASS_NOT_SERVED,    /* the destination's port is not open, or no path leads to its peer */
	LOOM_PASS_REFRESH,       /* so that the kernel knows that the source is still there */
	LOOM_PASS_PEER,          /* from a VTEP that is not known */
	LOOM_PASS_NO_ROOM,       /* no room for the VLAN tag that the driver took off */
	LOOM_FAST,               /* forwarded, by user space's tables */
	LOOM_VERDICTS,
};

#endif
