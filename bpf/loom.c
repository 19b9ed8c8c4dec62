//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
/* The XDP classifier: which frames belong to the fabric's user space, and which
 * stay with the kernel. One program for each kind of port. A frame that is ours
 * goes to the AF_XDP socket of its queue, with the flow hash and the header
 * offsets in the metadata area before it; everything else is XDP_PASS. What is
 * malformed and addressed to us goes to user space, too, which discards it under
 * a named reason. The programs themselves drop only what comes from hosts: by a
 * closed access port while nobody serves its queue, and where a VLAN tag that the
 * driver took off cannot be put back.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "loom.h"

/* The kernel lets programs under the GPL alone read what drivers know of a frame. */
char _license[] SEC("license") = "GPL";

/* Tells which VLAN tag the driver took off a frame: TPID in network, TCI in host
 * byte order. 0: there was one. Since Linux 6.8, for programs that are loaded for
 * one device.
 */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *tpid, __u16 *tci) __ksym;

/* Set by the loader before the programs are verified. */
const volatile __u32 vtep_addr;  /* uplink: own VTEP, network byte order; 0: it is of IPv6 */
const volatile __u64 vtep_addr6[2]; /* likewise, of IPv6 */
const volatile __u16 vxlan_port; /* UDP, host byte order */
const volatile __u32 hash_seed;
const volatile __u32 multi_buffer; /* frames can be longer than what data_end shows of them */
const volatile __u32 no_socket = XDP_PASS; /* access: what becomes of frames that nobody serves */

/* Sockets by queue. The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOOM_VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* How many link-local frames of a CPU went to the kernel in a second or so. */
struct link_local {
	__u64 second; /* since boot, of 2^30 ns */
	__u64 frames;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct link_local);
} link_local SEC(".maps");

struct lpm_key {
	__u32 prefixlen;
	__u32 addr; /* network byte order */
};

struct lpm_key6 {
	__u32 prefixlen;
	__u32 addr[4]; /* network byte order */
};

/* Spine: prefixes of the leaves' VTEPs, and with value 0 those among them that are the
 * kernel's. The loader sets the size, or takes a map that all ports share. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lpm_key);
	__type(value, __u8);
} remotes SEC(".maps");

/* remotes6 is remotes for IPv6. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct lpm_key6);
	__type(value, __u8);
} remotes6 SEC(".maps");

#define ETH_LEN 14
#define VLAN_LEN 4
#define IPV4_LEN 20
#define IPV6_LEN 40
#define UDP_LEN 8
#define VXLAN_LEN 8
#define SHIM_LEN 4
#define BTH_LEN 12

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86DD
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88A8
#define ETHERTYPE_LOCAL 0x88B5 /* IEEE 802: for local experiments */

/* Protocols of the link that hosts may speak with the kernel. */
#define ETHERTYPE_LLC_MAX 0x05FF /* up to here it is a length: LLC, as of STP */
#define ETHERTYPE_PAUSE 0x8808
#define ETHERTYPE_SLOW 0x8809 /* LACP, OAM */
#define ETHERTYPE_EAPOL 0x888E
#define ETHERTYPE_LLDP 0x88CC
#define ETHERTYPE_PTP 0x88F7

#define LINK_LOCAL_LIMIT 1000 /* frames a second and CPU of a port to the kernel */

#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_IPV6_FRAGMENT 44
#define PROTO_SCTP 132
#define PROTO_HOP_BY_HOP 0
#define PROTO_ROUTING 43
#define PROTO_DESTINATION 60

#define IPV4_FRAGMENT 0x3FFF /* MF and the 13 bits of the offset */
#define IPV6_FRAGMENT_OFFSET 0xFFF8
#define PORT_ROCE 4791

/* Bits of the last of the VXLAN header's bytes 1 to 3. */
#define FABRIC_CAPABLE 0x01
#define FABRIC_SHIM 0x04

/* Single loads from a header, wherever it lies: a plain dereference, as a
 * packed type would make the compiler load and join single bytes.
 */
#define load8(p) (*(__u8 *)(p))
#define load16(p) (*(__u16 *)(p)) /* memory order */
#define load32(p) (*(__u32 *)(p))
#define load64(p) (*(__u64 *)(p))
#define be16(p) bpf_ntohs(load16(p))

/* A frame, or the one inside another: bytes [start, start+len). len can end
 * before the buffer does (Ethernet padding behind the outer datagram), so both
 * it and end must be respected.
 */
struct frame {
	void *start;
	void *end; /* of the buffer: what the verifier checks against */
	__u32 len;
};

/* has says whether n bytes at p, which lies off bytes into f, are there. */
#define has(f, p, off, n) ((off) + (n) <= (f)->len && (p) + (n) <= (f)->end)

static __always_inline __u64 mix(__u64 h, __u64 w)
{
	h ^= w;
	h *= 0x9E3779B97F4A7C15ULL;
	return h ^ h >> 32;
}

static __always_inline __u32 finish(__u64 h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	return h >> 32;
}

/* hash_ports mixes the protocol with the ports at l4, if they are to be had
 * within the datagram, which ends at offset dgram of the frame.
 */
static __always_inline __u64 hash_ports(const struct frame *f, __u64 h, void *l4, __u32 off,
					__u32 dgram, __u8 proto, struct loom_meta *m)
{
	__u32 ports;

	if (proto != PROTO_TCP && proto != PROTO_UDP && proto != PROTO_SCTP)
		return mix(h, (__u64)proto << 32);
	if (m->flags & LOOM_FRAGMENT || off + 4 > dgram || !has(f, l4, off, 4))
		return mix(h, (__u64)proto << 32);

	ports = load32(l4);
	m->flags |= LOOM_PORTS;
	m->l4 = off;
	h = mix(h, (__u64)proto << 32 | ports);

	if (proto == PROTO_UDP && bpf_ntohs(ports >> 16) == PORT_ROCE &&
	    off + UDP_LEN + BTH_LEN <= dgram && has(f, l4, off, UDP_LEN + BTH_LEN)) {
		m->flags |= LOOM_ROCE;
		h = mix(h, bpf_ntohl(load32(l4 + UDP_LEN + 4)) & 0xFFFFFF);
	}
	return h;
}

/* dissect fills in m for the frame, except for inner. False when the frame is
 * too short to be Ethernet. overlay.Dissect is the same function in Go.
 */
static __always_inline int dissect(const struct frame *f, struct loom_meta *m)
{
	__u64 h = (__u64)hash_seed ^ 0x4C6F6F6D;
	void *start = f->start, *p;
	__u32 off = ETH_LEN;
	__u16 type;

	if (!has(f, start, 0, ETH_LEN))
		return 0;
	m->magic = LOOM_META_MAGIC;
	type = be16(start + 12);

	for (int tag = 0; tag < 2; tag++) {
		p = start + off;
		if ((type != ETHERTYPE_VLAN && type != ETHERTYPE_QINQ) || !has(f, p, off, VLAN_LEN))
			break;
		if (tag == 0) {
			m->vlan = be16(p);
			m->flags |= LOOM_VLAN;
		}
		type = be16(p + 2);
		off += VLAN_LEN;
	}
	p = start + off;

	if (type == ETHERTYPE_IPV4 && has(f, p, off, IPV4_LEN)) {
		__u32 hlen = (load8(p) & 0x0F) << 2;

		if (load8(p) >> 4 == 4 && hlen >= IPV4_LEN && has(f, p, off, hlen)) {
			m->flags |= LOOM_IPV4;
			m->l3 = off;
			if (be16(p + 6) & IPV4_FRAGMENT)
				m->flags |= LOOM_FRAGMENT;
			h = mix(h, load32(p + 12) | (__u64)load32(p + 16) << 32);
			h = hash_ports(f, h, p + hlen, off + hlen, off + be16(p + 2), load8(p + 9), m);
			m->hash = finish(h);
			return 1;
		}
	}
	if (type == ETHERTYPE_IPV6 && has(f, p, off, IPV6_LEN) && load8(p) >> 4 == 6) {
		__u8 next = load8(p + 6);

		m->flags |= LOOM_IPV6;
		m->l3 = off;
		if (next == PROTO_IPV6_FRAGMENT)
			m->flags |= LOOM_FRAGMENT;
		h = mix(h, load64(p + 8));
		h = mix(h, load64(p + 16));
		h = mix(h, load64(p + 24));
		h = mix(h, load64(p + 32));
		h = hash_ports(f, h, p + IPV6_LEN, off + IPV6_LEN,
			       off + IPV6_LEN + be16(p + 4), next, m);
		m->hash = finish(h);
		return 1;
	}
	h = mix(h, load32(start) | (__u64)load16(start + 4) << 32 | (__u64)type << 48);
	h = mix(h, load16(start + 6) | (__u64)load32(start + 8) << 16);
	m->hash = finish(h);
	return 1;
}

static __always_inline int count(__u32 verdict, int action)
{
	__u64 *n = bpf_map_lookup_elem(&counters, &verdict);

	if (n)
		(*n)++; /* this CPU's own */
	return action;
}

/* put_meta writes m before the frame. False when the driver gives no room. */
static __always_inline int put_meta(struct xdp_md *ctx, const struct loom_meta *m)
{
	struct loom_meta *to;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*m)))
		return 0;
	to = (void *)(long)ctx->data_meta;
	if ((void *)(to + 1) > (void *)(long)ctx->data)
		return 0;
	*to = *m;
	return 1;
}

/* redirect_to picks the socket of the frame's queue. It only notes the target,
 * so the metadata may still be written afterwards; XDP_PASS: there is none.
 */
static __always_inline int redirect_to(struct xdp_md *ctx)
{
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

static __always_inline struct frame whole(struct xdp_md *ctx)
{
	struct frame f = {
		.start = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
		.len = ctx->data_end - ctx->data,
	};

	if (multi_buffer)
		f.len = bpf_xdp_get_buff_len(ctx);
	return f;
}

/* arrived is whole for a frame as it comes. A sender at the other end of a veth pair can
 * leave metadata of its own in front of it, which put_meta would put ours before.
 */
static __always_inline struct frame arrived(struct xdp_md *ctx)
{
	long left = (void *)(long)ctx->data - (void *)(long)ctx->data_meta;

	if (left > 0)
		bpf_xdp_adjust_meta(ctx, left);
	return whole(ctx);
}

/* Offsets in an outer frame of the addresses that it goes to. */
#define OUTER_DST (ETH_LEN + 16)
#define OUTER_DST6 (ETH_LEN + 24)

/* vxlan_l4 returns the offset of the UDP header if the frame is an unfragmented
 * IPv4 datagram to the VXLAN port, else 0. Lengths and checksums are left to
 * user space, which counts what is wrong.
 */
static __always_inline __u32 vxlan_l4(const struct frame *f)
{
	void *ip = f->start + ETH_LEN, *udp;
	__u32 hlen;

	if (ip + IPV4_LEN > f->end || be16(f->start + 12) != ETHERTYPE_IPV4)
		return 0;
	hlen = (load8(ip) & 0x0F) << 2;
	if (load8(ip) >> 4 != 4 || hlen < IPV4_LEN || load8(ip + 9) != PROTO_UDP ||
	    be16(ip + 6) & IPV4_FRAGMENT)
		return 0;
	udp = ip + hlen;
	if (udp + UDP_LEN > f->end || be16(udp + 2) != vxlan_port)
		return 0;
	return ETH_LEN + hlen;
}

/* vxlan_l4_6 is vxlan_l4 for IPv6, without extension headers. */
static __always_inline __u32 vxlan_l4_6(const struct frame *f)
{
	void *ip = f->start + ETH_LEN, *udp = ip + IPV6_LEN;

	if (udp + UDP_LEN > f->end || be16(f->start + 12) != ETHERTYPE_IPV6)
		return 0;
	if (load8(ip) >> 4 != 6 || load8(ip + 6) != PROTO_UDP || be16(udp + 2) != vxlan_port)
		return 0;
	return ETH_LEN + IPV6_LEN;
}

/* behind_extension says whether one extension header, or a fragment header, stands
 * between IPv6 and a UDP header to the VXLAN port. No VTEP sends that; user space drops it
 * by name.
 */
static __always_inline int behind_extension(const struct frame *f)
{
	void *ip = f->start + ETH_LEN, *ext = ip + IPV6_LEN, *udp;
	__u8 next;

	if (ext + 8 > f->end || be16(f->start + 12) != ETHERTYPE_IPV6 || load8(ip) >> 4 != 6)
		return 0;
	next = load8(ip + 6);
	if (next != PROTO_HOP_BY_HOP && next != PROTO_ROUTING && next != PROTO_DESTINATION &&
	    next != PROTO_IPV6_FRAGMENT)
		return 0;
	if (load8(ext) != PROTO_UDP)
		return 0;
	udp = ext + 8;
	if (next == PROTO_IPV6_FRAGMENT) {
		if (be16(ext + 2) & IPV6_FRAGMENT_OFFSET) /* the ports are in the first one */
			return 0;
	} else {
		udp += (__u32)load8(ext + 1) << 3;
	}
	return udp + UDP_LEN <= f->end && be16(udp + 2) == vxlan_port;
}

/* to_vtep says whether a frame of IPv6 goes to our VTEP. The caller has checked that the
 * header is there.
 */
#define to_vtep6(f) \
	(load64((f)->start + OUTER_DST6) == vtep_addr6[0] && load64((f)->start + OUTER_DST6 + 8) == vtep_addr6[1])

/* to_us returns the offset of the UDP header if the frame is VXLAN to our VTEP, else 0.
 * The verifier knows the VTEP, and drops the other family's half.
 */
static __always_inline __u32 to_us(const struct frame *f)
{
	__u32 l4;

	if (vtep_addr) {
		l4 = vxlan_l4(f);
		return l4 && load32(f->start + OUTER_DST) == vtep_addr ? l4 : 0;
	}
	l4 = vxlan_l4_6(f);
	return l4 && to_vtep6(f) ? l4 : 0;
}

/* inner finds the bytes behind the VXLAN header, as the UDP length has them,
 * and returns where they start; 0 if the lengths contradict the frame.
 */
static __always_inline int inner(const struct frame *f, __u32 l4, struct frame *in)
{
	void *udp = f->start + l4;
	__u32 skip = UDP_LEN + VXLAN_LEN, len;
	__u8 bits;

	if (udp + UDP_LEN + VXLAN_LEN > f->end)
		return 0;
	len = be16(udp + 4);
	bits = load8(udp + UDP_LEN + 3);
	if (bits & FABRIC_CAPABLE && bits & FABRIC_SHIM)
		skip += SHIM_LEN;
	if (len < skip || l4 + len > f->len)
		return 0;
	in->start = udp + skip;
	in->end = f->end;
	in->len = len - skip;
	return l4 + skip;
}

/* not_vxlan decides about a frame of the underlay that is not VXLAN to an address
 * of ours: the node at the other end of the link may have something to tell.
 */
static __always_inline int not_vxlan(struct xdp_md *ctx, const struct frame *f)
{
	if (f->start + ETH_LEN > f->end || be16(f->start + 12) != ETHERTYPE_LOCAL)
		return count(LOOM_PASS_NOT_OURS, XDP_PASS);
	if (redirect_to(ctx) != XDP_REDIRECT)
		return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
	return count(LOOM_REDIRECT_NEIGHBOUR, XDP_REDIRECT);
}

/* 01:80:c2:00:00:00 to 0f belong to the link (IEEE 802.1Q §8.6.3), without a tag. */
#define is_link_local(p) \
	(load32(p) == bpf_htonl(0x0180C200) && (load16((p) + 4) & bpf_htons(0xFFF0)) == 0)

/* for_kernel says whether a frame to a link-local address goes to the kernel: some
 * protocols do, up to a limit. The others would reach the node's own IP stack; user
 * space drops them, and what is beyond the limit, by name.
 */
static __always_inline int for_kernel(const struct frame *f)
{
	__u16 type = be16(f->start + 12);
	__u64 second = bpf_ktime_get_ns() >> 30;
	__u32 zero = 0;
	struct link_local *l;

	if (type > ETHERTYPE_LLC_MAX && type != ETHERTYPE_LLDP && type != ETHERTYPE_SLOW &&
	    type != ETHERTYPE_EAPOL && type != ETHERTYPE_PAUSE && type != ETHERTYPE_PTP)
		return 0;
	l = bpf_map_lookup_elem(&link_local, &zero);
	if (!l)
		return 0;
	if (l->second != second) {
		l->second = second;
		l->frames = 0;
	}
	return l->frames++ < LINK_LOCAL_LIMIT;
}

/* put_tag puts a VLAN tag in front of what follows the MAC addresses. False when
 * the driver gives no room.
 */
static __always_inline int put_tag(struct xdp_md *ctx, __be16 tpid, __u16 tci)
{
	void *p;

	if (bpf_xdp_adjust_head(ctx, -VLAN_LEN))
		return 0;
	p = (void *)(long)ctx->data;
	if (p + VLAN_LEN + ETH_LEN > (void *)(long)ctx->data_end)
		return 0;
	load64(p) = load64(p + VLAN_LEN);
	load32(p + 8) = load32(p + VLAN_LEN + 8);
	load16(p + 12) = tpid;
	load16(p + 14) = bpf_htons(tci);
	return 1;
}

/* unserved decides about a frame from hosts whose queue nobody serves. */
static __always_inline int unserved(void)
{
	if (no_socket == XDP_DROP)
		return count(LOOM_DROP_NO_SOCKET, XDP_DROP);
	return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
}

/* access decides about a frame from hosts, of which the driver took a tag off unless
 * tpid is 0. The kernel still knows of that tag; user space gets the frame as the host
 * sent it.
 */
static __always_inline int access(struct xdp_md *ctx, __be16 tpid, __u16 tci)
{
	struct frame f = arrived(ctx);
	struct loom_meta m = {};

	if (!tpid && f.start + ETH_LEN <= f.end && is_link_local(f.start) && for_kernel(&f))
		return count(LOOM_PASS_LINK_LOCAL, XDP_PASS);
	if (redirect_to(ctx) != XDP_REDIRECT)
		return unserved();
	if (tpid) {
		if (!put_tag(ctx, tpid, tci))
			return count(LOOM_DROP_NO_ROOM, XDP_DROP);
		f = whole(ctx);
	}
	if (dissect(&f, &m) && put_meta(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

SEC("xdp")
int loom_access(struct xdp_md *ctx)
{
	return access(ctx, 0, 0);
}

/* loom_access_tags is loom_access for drivers that say which tag they took off. */
SEC("xdp")
int loom_access_tags(struct xdp_md *ctx)
{
	__be16 tpid = 0;
	__u16 tci = 0;

	if (bpf_xdp_metadata_rx_vlan_tag(ctx, &tpid, &tci))
		tpid = 0;
	return access(ctx, tpid, tci);
}

SEC("xdp")
int loom_uplink(struct xdp_md *ctx)
{
	struct frame f = arrived(ctx), in;
	struct loom_meta m = {};
	__u32 l4 = to_us(&f);

	if (!l4 && (vtep_addr || !behind_extension(&f) || !to_vtep6(&f)))
		return not_vxlan(ctx, &f);
	if (redirect_to(ctx) != XDP_REDIRECT)
		return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
	if (!l4)
		return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
	m.inner = inner(&f, l4, &in);
	if (m.inner && dissect(&in, &m) && put_meta(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

/* is_remote says whether VXLAN goes to a leaf of the fabric; -1: it is no VXLAN. */
static __always_inline int is_remote(const struct frame *f)
{
	__u8 *ours;

	if (vxlan_l4(f)) {
		struct lpm_key key = {.prefixlen = 32, .addr = load32(f->start + OUTER_DST)};

		ours = bpf_map_lookup_elem(&remotes, &key);
	} else if (vxlan_l4_6(f)) {
		struct lpm_key6 key = {.prefixlen = 128};

		for (int i = 0; i < 4; i++)
			key.addr[i] = load32(f->start + OUTER_DST6 + 4 * i);
		ours = bpf_map_lookup_elem(&remotes6, &key);
	} else {
		return -1;
	}
	return ours && *ours;
}

SEC("xdp")
int loom_spine(struct xdp_md *ctx)
{
	struct frame f = arrived(ctx);
	struct loom_meta m = {};
	int ours = is_remote(&f);

	if (ours < 0)
		return not_vxlan(ctx, &f);
	if (!ours)
		return count(LOOM_PASS_NOT_OURS, XDP_PASS);
	if (redirect_to(ctx) != XDP_REDIRECT)
		return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
	if (dissect(&f, &m) && put_meta(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

#include "kernel.h"
#include "fast.h"
#include "fast_leaf.h"
#include "fast_access.h"
