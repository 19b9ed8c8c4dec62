/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The programs of a leaf whose overlay is the kernel's (decision 0025): a Linux bridge
 * and its VXLAN devices are the truth, and user space takes from them what it knows how
 * to forward. All else is XDP_PASS, as if no program were there: the kernel learns,
 * ages, floods, routes and answers by itself. A frame that is passed is not changed, but
 * for the fabric's bits in a VXLAN header, which the kernel would not accept.
 *
 * The maps of addresses, networks and peers are a node's, shared by the programs of its
 * ports; user space writes them. It may give an entry to another address while a program
 * reads it. Then one frame is judged by a wrong place, or one address counts as passed
 * that was not: the worker decides by tables of its own, and the next interval passes it.
 *
 * Part of loom.c, which includes it.
 */
#ifndef LOOM_KERNEL_H
#define LOOM_KERNEL_H

/* The port's number, as in places. Set by the loader. */
const volatile __u32 port_number;

/* A place is overlay.Dest: 01 0 0 VLAN(12) port(16) for an address behind a port of
 * ours, 10 0 .. peer(16) for one behind a peer.
 */
#define PLACE_LOCAL 0x40000000
#define PLACE_VLAN_SHIFT 16

#define TICK_SHIFT 24 /* ticks of 2^24 ns, as overlay.FDB's */

struct loom_address {
	__u32 place;
	__u32 passed; /* tick at which the kernel was last shown a frame of this source */
};

/* By network(16) . MAC(48), the first byte of the address the most significant. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct loom_address);
} addresses SEC(".maps");

/* Number of a network, by VNI. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} networks SEC(".maps");

/* The known VTEPs, in network byte order. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} peers SEC(".maps");

/* peers6 is peers for IPv6. */
struct loom_vtep6 {
	__u32 addr[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct loom_vtep6);
	__type(value, __u32);
} peers6 SEC(".maps");

/* Whether user space can send to a place: 1, or 0. By port, and behind them by peer. */
#define SERVED_PORTS 256
#define SERVED_PEERS 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SERVED_PORTS + SERVED_PEERS);
	__type(key, __u32);
	__type(value, __u32);
} served SEC(".maps");

/* What frames of a VLAN of this port belong to. */
struct loom_vlan {
	__u16 network; /* its number, and one; 0: it is the kernel's alone */
	__u16 refresh; /* ticks between frames of a source that the kernel is shown */
};

#define VLANS 4096

/* By VLAN identifier; 0: frames without a tag. One map for each program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VLANS);
	__type(key, __u32);
	__type(value, struct loom_vlan);
} vlans SEC(".maps");

#define VID_MASK 0x0FFF
#define OUTER_LEN(ip_len) (ETH_LEN + (ip_len) + UDP_LEN + VXLAN_LEN)
#define MAC_MASK 0xFFFFFFFFFFFFULL
#define NETWORK_SHIFT 48

#define is_tag(type) ((type) == ETHERTYPE_VLAN || (type) == ETHERTYPE_QINQ)

/* dst_mac and src_mac are the addresses of the Ethernet header at p as numbers. */
#define dst_mac(p) (bpf_be64_to_cpu(load64(p)) >> 16)
#define src_mac(p) (bpf_be64_to_cpu(load64((p) + 4)) & MAC_MASK)

/* vlan_of returns the VLAN of a host's frame: of the tag beside the frame, or else of
 * the one in it, and 0 for frames without. VLANS: service tags, and second ones, which
 * are the kernel's.
 */
static __always_inline __u32 vlan_of(const struct frame *f, __be16 tpid, __u16 tci)
{
	__u16 type = be16(f->start + 12);
	void *p = f->start + ETH_LEN;

	if (!tpid && type == ETHERTYPE_VLAN && has(f, p, ETH_LEN, VLAN_LEN)) {
		tpid = bpf_htons(ETHERTYPE_VLAN);
		tci = be16(p);
		type = be16(p + 2);
	}
	if (is_tag(type) || (tpid && tpid != bpf_htons(ETHERTYPE_VLAN)))
		return VLANS;
	return tci & VID_MASK;
}

/* is_served says whether user space can send to a place. */
static __always_inline int is_served(__u32 place)
{
	__u32 i = (__u16)place + (place & PLACE_LOCAL ? 0 : SERVED_PORTS);
	__u32 *yes = bpf_map_lookup_elem(&served, &i);

	return yes && *yes;
}

/* shown says whether the kernel was shown a frame of this source lately. If not, it is
 * shown this one.
 */
static __always_inline int shown(struct loom_address *from, const struct loom_vlan *vlan)
{
	__u32 now = bpf_ktime_get_coarse_ns() >> TICK_SHIFT;

	if (now - from->passed < vlan->refresh)
		return 1;
	from->passed = now;
	return 0;
}

/* judge says what a host's frame of a VLAN is: LOOM_REDIRECT if user space forwards it,
 * else why it is the kernel's.
 */
static __always_inline __u32 judge(const struct frame *f, __u32 vid)
{
	struct loom_address *from, *to;
	struct loom_vlan *vlan;
	__u64 network, key;
	__u32 here;

	vlan = bpf_map_lookup_elem(&vlans, &vid);
	if (!vlan || !vlan->network)
		return LOOM_PASS_NETWORK;
	network = (__u64)(__u16)(vlan->network - 1) << NETWORK_SHIFT;
	here = PLACE_LOCAL | vid << PLACE_VLAN_SHIFT | port_number;

	key = network | src_mac(f->start);
	from = bpf_map_lookup_elem(&addresses, &key);
	if (!from || from->place != here)
		return LOOM_PASS_SOURCE;
	key = network | dst_mac(f->start);
	to = bpf_map_lookup_elem(&addresses, &key);
	if (!to || to->place == here) /* back to where it came from: a bridge port may do that */
		return LOOM_PASS_DESTINATION;
	if (!is_served(to->place))
		return LOOM_PASS_NOT_SERVED;
	return shown(from, vlan) ? LOOM_REDIRECT : LOOM_PASS_REFRESH;
}

/* kernel_access is access for the kernel's leaf. */
static __always_inline int kernel_access(struct xdp_md *ctx, __be16 tpid, __u16 tci)
{
	struct frame f = arrived(ctx);
	struct loom_meta m = {};
	__u32 verdict;

	if (f.start + ETH_LEN > f.end)
		return count(LOOM_PASS_NOT_OURS, XDP_PASS);
	if (load8(f.start) & 1)
		return count(!tpid && is_link_local(f.start) ? LOOM_PASS_LINK_LOCAL : LOOM_PASS_GROUP, XDP_PASS);
	verdict = judge(&f, vlan_of(&f, tpid, tci));
	if (verdict != LOOM_REDIRECT)
		return count(verdict, XDP_PASS);
	if (redirect_to(ctx) != XDP_REDIRECT)
		return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
	if (tpid) {
		if (!put_tag(ctx, tpid, tci))
			return count(LOOM_PASS_NO_ROOM, XDP_PASS);
		f = whole(ctx);
	}
	if (dissect(&f, &m) && put_meta(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

SEC("xdp")
int loom_kernel_access(struct xdp_md *ctx)
{
	return kernel_access(ctx, 0, 0);
}

/* loom_kernel_access_tags is loom_kernel_access for drivers that say which tag they took
 * off.
 */
SEC("xdp")
int loom_kernel_access_tags(struct xdp_md *ctx)
{
	__be16 tpid = 0;
	__u16 tci = 0;

	if (bpf_xdp_metadata_rx_vlan_tag(ctx, &tpid, &tci))
		tpid = 0;
	return kernel_access(ctx, tpid, tci);
}

/* Bits of a VXLAN header, by byte. */
#define VXLAN_FLAG_VNI 0x08
#define VXLAN_FLAGS 0x0F      /* without those that number the scheme */
#define VXLAN_GBP 0x88        /* the first byte of VXLAN-GBP: no scheme has this number */
#define VXLAN_PLAIN 0x08000000
#define FABRIC_OPCODE_LOW 0x80 /* byte 3 */
#define FABRIC_OPCODE_HIGH 0x03 /* byte 2: opcodes from 2 on are control packets' */

/* What a VXLAN header is. */
enum vxlan_kind {
	VXLAN_FOREIGN, /* neither RFC 7348's nor the fabric's */
	VXLAN_RFC7348,
	VXLAN_CAPABLE, /* a tenant's frame, and the fabric's fields */
	VXLAN_SHIM,    /* likewise, and a shim */
	VXLAN_CONTROL, /* of leaves to each other: no tenant's */
};

static __always_inline enum vxlan_kind vxlan_kind(void *vx)
{
	__u8 flags = load8(vx), last = load8(vx + 3);

	if ((flags & VXLAN_FLAGS) == VXLAN_FLAG_VNI && last & FABRIC_CAPABLE && flags != VXLAN_GBP) {
		if (load8(vx + 2) & FABRIC_OPCODE_HIGH)
			return VXLAN_CONTROL;
		return last & FABRIC_SHIM ? VXLAN_SHIM : VXLAN_CAPABLE;
	}
	if (load32(vx) == bpf_htonl(VXLAN_PLAIN) && !load8(vx + 7))
		return VXLAN_RFC7348;
	return VXLAN_FOREIGN;
}

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xFFFF) + (sum >> 16);
	return sum + (sum >> 16);
}

/* clear makes a header of the fabric one of RFC 7348, by which the kernel knows it. It
 * keeps the UDP checksum right, unless that is 0, which means none (RFC 1624).
 */
static __always_inline void clear(void *udp)
{
	void *vx = udp + UDP_LEN;
	__u16 was[3] = {load16(vx), load16(vx + 2), load16(vx + 6)};
	__u16 sum = load16(udp + 6);

	load32(vx) = bpf_htonl(VXLAN_PLAIN);
	load8(vx + 7) = 0;
	if (!sum)
		return;
	sum = fold((__u32)(__u16)~sum + (__u16)~was[0] + (__u16)~was[1] + (__u16)~was[2] +
		   load16(vx) + load16(vx + 6));
	sum = ~sum;
	load16(udp + 6) = sum ? sum : 0xFFFF;
}

/* take_shim takes the shim out of a frame of the fabric, which is a frame of RFC 7348
 * then. False, and the frame is as it was, for one that no leaf sends: with IP options.
 */
static __always_inline int take_shim(struct xdp_md *ctx, __u32 l4, const __u32 ip_len)
{
	const __u32 outer = OUTER_LEN(ip_len);
	void *p = (void *)(long)ctx->data;
	__u64 words[OUTER_LEN(IPV6_LEN) / 8];
	__u16 last_half, len;
	__u32 last;

	/* Of 50 or 70 bytes, 2 or 6 are left over by words of 8. */
	if (l4 != ETH_LEN + ip_len || p + outer + SHIM_LEN > (void *)(long)ctx->data_end)
		return 0;
	for (__u32 i = 0; i < outer / 8; i++)
		words[i] = load64(p + 8 * i);
	last = load32(p + outer - 6);
	last_half = load16(p + outer - 2);
	if (bpf_xdp_adjust_head(ctx, SHIM_LEN))
		return 0;
	p = (void *)(long)ctx->data;
	if (p + outer > (void *)(long)ctx->data_end)
		return 0; /* never */
	for (__u32 i = 0; i < outer / 8; i++)
		load64(p + 8 * i) = words[i];
	load32(p + outer - 6) = last;
	load16(p + outer - 2) = last_half;

	if (ip_len == IPV6_LEN) {
		load16(p + ETH_LEN + 4) = bpf_htons(be16(p + ETH_LEN + 4) - SHIM_LEN);
	} else {
		len = load16(p + ETH_LEN + 2);
		load16(p + ETH_LEN + 2) = bpf_htons(bpf_ntohs(len) - SHIM_LEN);
		load16(p + ETH_LEN + 10) = ~fold((__u32)(__u16)~load16(p + ETH_LEN + 10) + (__u16)~len +
						 load16(p + ETH_LEN + 2)); /* RFC 1624 */
	}
	p += ETH_LEN + ip_len;
	load16(p + 4) = bpf_htons(be16(p + 4) - SHIM_LEN);
	load16(p + 6) = 0; /* without a checksum (RFC 768), as leaves send it */
	clear(p);
	return 1;
}

/* from_peer says whether an outer frame comes from a VTEP that is known. */
static __always_inline int from_peer(const struct frame *f)
{
	if (vtep_addr) {
		__u32 vtep = load32(f->start + ETH_LEN + 12);

		return bpf_map_lookup_elem(&peers, &vtep) != 0;
	}
	struct loom_vtep6 vtep;

	for (int i = 0; i < 4; i++)
		vtep.addr[i] = load32(f->start + ETH_LEN + 8 + 4 * i);
	return bpf_map_lookup_elem(&peers6, &vtep) != 0;
}

/* tenant says what a tenant's frame in VXLAN is, as judge does. */
static __always_inline __u32 tenant(const struct frame *f, __u32 l4, const struct frame *in)
{
	void *vx = f->start + l4 + UDP_LEN;
	__u32 vni, *network;
	struct loom_address *to;
	__u64 key;

	if (!from_peer(f))
		return LOOM_PASS_PEER;
	if (vx + VXLAN_LEN > f->end)
		return LOOM_PASS_NETWORK;
	vni = bpf_ntohl(load32(vx + 4)) >> 8;
	network = bpf_map_lookup_elem(&networks, &vni);
	if (!network)
		return LOOM_PASS_NETWORK;
	/* RFC 7348 §6.1 has no tags in tunnels; a bridge may know what to do with them. */
	if (!in->start || !has(in, in->start, 0, ETH_LEN) || is_tag(be16(in->start + 12)))
		return LOOM_PASS_DESTINATION;
	if (load8(in->start) & 1)
		return LOOM_PASS_GROUP;
	key = (__u64)*network << NETWORK_SHIFT | dst_mac(in->start);
	to = bpf_map_lookup_elem(&addresses, &key);
	if (!to || !(to->place & PLACE_LOCAL))
		return LOOM_PASS_DESTINATION;
	return is_served(to->place) ? LOOM_REDIRECT : LOOM_PASS_NOT_SERVED;
}

/* loom_kernel_uplink is loom_uplink for the kernel's leaf. What the fabric alone
 * understands goes to user space whoever sent it: there it is dropped by name, while the
 * kernel would bridge a shim, or a control packet, as if it were a host's.
 */
SEC("xdp")
int loom_kernel_uplink(struct xdp_md *ctx)
{
	struct frame f = arrived(ctx), in = {};
	struct loom_meta m = {};
	__u32 l4 = to_us(&f), verdict = LOOM_REDIRECT;
	enum vxlan_kind kind;
	void *udp;

	if (!l4)
		return not_vxlan(ctx, &f);
	udp = f.start + l4;
	if (udp + UDP_LEN + VXLAN_LEN > f.end)
		return count(LOOM_PASS_NETWORK, XDP_PASS);
	kind = vxlan_kind(udp + UDP_LEN);
	if (kind == VXLAN_FOREIGN)
		return count(LOOM_PASS_NETWORK, XDP_PASS);
	m.inner = inner(&f, l4, &in);
	if (kind < VXLAN_SHIM)
		verdict = tenant(&f, l4, &in);
	if (verdict == LOOM_REDIRECT && redirect_to(ctx) != XDP_REDIRECT) {
		if (kind == VXLAN_SHIM && m.inner && (vtep_addr ? take_shim(ctx, l4, IPV4_LEN) : take_shim(ctx, l4, IPV6_LEN)))
			return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
		if (kind >= VXLAN_SHIM)
			return count(LOOM_DROP_NO_SOCKET, XDP_DROP);
		verdict = LOOM_PASS_NO_SOCKET;
	}
	if (verdict != LOOM_REDIRECT) {
		if (kind == VXLAN_CAPABLE)
			clear(udp);
		return count(verdict, XDP_PASS);
	}
	if (m.inner && dissect(&in, &m) && put_meta(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

#endif
