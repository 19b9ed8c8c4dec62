/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The fast path of a leaf's uplinks (decision 0034): a tenant's frame that comes out of its
 * tunnel, from a VTEP and to an address that user space knows, goes to its access port here.
 * What this program does to it, dataplane/uplink.go and access.go do, byte for byte; what
 * comes with a scheme's shim, is new, or is not plain goes to that code. As in fast.h, there
 * is no scheme in it, and it drops nothing.
 *
 * Where addresses live it reads in the worker's own table (overlay.NewFDBIn). It learns
 * nothing: a source that is not where the table has it is the worker's. A source that is to
 * be noted again is told to the worker by its key.
 *
 * Part of loom.c, which includes it.
 */
#ifndef LOOM_FAST_LEAF_H
#define LOOM_FAST_LEAF_H

/* Set by the loader. */
const volatile __u32 fast_fdb_mask;   /* buckets of a worker's table, less one */
const volatile __u32 fast_top_metric; /* the largest that there is */

#define FAST_PEERS 1024
#define FAST_NETWORKS 4096
#define FAST_SLOTS 4   /* places of a hash table for each entry that it may get */
#define FAST_PROBES 8  /* places that an entry may be away from its own */
#define FAST_TOUCHED 256 /* keys that a worker is told at a time, power of two */
#define FAST_TAGS 16
#define FAST_INNER (ETH_LEN + IPV4_LEN + UDP_LEN + VXLAN_LEN)
#define FAST_VIDS 4096
#define FABRIC_FEEDBACK 0x02 /* in byte 3 of a VXLAN header */

struct fast_vtep {
	__u32 addr; /* network byte order; 0: the place is free */
	__u16 peer;
	__u16 from; /* uplinks that its packets may come by, as bits by LBTag */
};

struct fast_network {
	__u32 vni; /* 0: the place is free */
	__u16 index;
	__u16 restricted; /* not all peers may send into it */
};

/* A copy of what a leaf knows of the fabric. */
struct fast_leaf {
	struct fast_vtep vteps[FAST_SLOTS * FAST_PEERS];
	struct fast_network networks[FAST_SLOTS * FAST_NETWORKS];
	__u64 senders[FAST_NETWORKS][FAST_PEERS / 64]; /* peers that may send into a network, as bits */
	__u64 tags; /* own uplinks, as bits by LBTag */
	__u32 vnis[FAST_NETWORKS]; /* by index */
};

/* Networks of a port by VLAN, index plus one; 0: there is none. */
struct fast_vlans {
	__u16 network[FAST_VIDS];
};

/* overlay.fdbBucket, and in front of a worker's buckets overlay.fdbHead */
struct fast_bucket {
	__u64 key[4];
	__u32 dest[4];
	__u32 seen[4];
};

struct fast_bucket_head {
	__s32 refresh;
	__s32 doubt; /* of places behind ports */
	__s32 age;   /* of places behind peers */
	__u8 pad[52];
};

/* What has come from a peer. A word holds a metric in 3 bits and a count above them, so that
 * each packet changes it: user space takes what has changed into its tables.
 */
struct fast_heard {
	__u64 frames, bytes;
	__u64 capable;        /* frames with the fabric's fields */
	__u64 congested;      /* those of them with CE */
	__u64 feedback;       /* likewise with feedback */
	__u32 came[FAST_TAGS]; /* by the peer's LBTag: frames */
	__u32 hot[FAST_TAGS];  /* by the peer's LBTag: frames whose CE is above half of the scale */
	__u32 ce[FAST_TAGS];   /* by the peer's LBTag: a word of its last CE */
	__u32 fed[FAST_TAGS];  /* by own LBTag: a word of the last feedback */
	__u8 pad[24];
};

struct fast_passage {
	__u64 frames, in_bytes, out_bytes;
};

#define FAST_METRIC 7 /* of those words */

/* Written by user space. */
FAST_ARRAY(fast_leaf, struct fast_leaf);  /* two copies */
FAST_ARRAY(fast_vlans, struct fast_vlans); /* two copies, by port */
FAST_ARRAY(fast_fdb, struct fast_bucket); /* by queue: a head, and buckets */

/* Written here, and by user space, which clears what it has read. */
FAST_ARRAY(fast_touched, __u64); /* by queue: keys of sources that are to be noted again */

/* Written here, by CPU. */
FAST_ARRAY(fast_heard, struct fast_heard);     /* by peer */
FAST_ARRAY(fast_entered, struct fast_traffic); /* by network */
FAST_ARRAY(fast_passed, struct fast_passage);  /* by port it came in by, port it left by */

/* A place of overlay.FDB: kind(2) static(1) 0, and what kernel.h has. */
#define FAST_STATIC 0x20000000
#define PLACE_REMOTE 0x80000000

/* What follows without static is verified once, and not for each way that leads to it: the
 * verifier would look at half a million instructions otherwise.
 */
#define FAST_FUNCTION __attribute__((noinline))

/* fast_vtep returns the peer with an address, and from which uplinks it may come in the upper
 * half; 0: none.
 */
static __always_inline __u32 fast_vtep(const struct fast_leaf *t, __u32 addr)
{
	__u32 at = addr * 0x9E3779B1 >> 20;

	if (!t || !addr)
		return 0;
	for (__u32 i = 0; i < FAST_PROBES; i++) {
		const struct fast_vtep *v = &t->vteps[(at + i) & (FAST_SLOTS * FAST_PEERS - 1)];

		if (v->addr == addr)
			return (__u32)v->from << 16 | v->peer;
	}
	return 0;
}

/* fast_network returns the index of a network that a peer may send into; FAST_NETWORKS:
 * there is none.
 */
static __always_inline __u32 fast_network(const struct fast_leaf *t, __u32 vni, __u32 peer)
{
	__u32 at = vni * 0x9E3779B1 >> 18;

	if (!t || !vni)
		return FAST_NETWORKS;
	for (__u32 i = 0; i < FAST_PROBES; i++) {
		const struct fast_network *n = &t->networks[(at + i) & (FAST_SLOTS * FAST_NETWORKS - 1)];
		__u32 index = n->index & (FAST_NETWORKS - 1);

		if (n->vni != vni)
			continue;
		if (n->restricted && !(t->senders[index][peer >> 6 & (FAST_PEERS / 64 - 1)] >> (peer & 63) & 1))
			return FAST_NETWORKS;
		return index;
	}
	return FAST_NETWORKS;
}

/* fast_fdb_hash is overlay.fdbHash: the halves of a product of 128 bits. */
static __always_inline __u64 fast_fdb_hash(__u64 key)
{
	const __u64 by_low = 0x78bd642f, by_high = 0xa0761d64;
	__u64 low = (__u32)key, high = key >> 32, mid, cross;

	mid = high * by_low + (low * by_low >> 32);
	cross = low * by_high + (__u32)mid;
	return (high * by_high + (mid >> 32) + (cross >> 32)) ^ key * 0xa0761d6478bd642fULL;
}

/* fast_entry returns the place of an address in a worker's table, and when it was noted; 0:
 * the table has none, or has just changed.
 */
static __always_inline __u32 fast_entry(__u32 head, __u64 key, __u32 *seen)
{
	__u64 h = fast_fdb_hash(key);
	__u32 place = 0;

	for (int half = 0; half < 2 && !place; half++, h >>= 32) {
		__u32 i = head + 1 + ((__u32)h & fast_fdb_mask);
		struct fast_bucket *b = bpf_map_lookup_elem(&fast_fdb, &i);

		if (!b)
			return 0;
		for (int w = 0; w < 4; w++) {
			if (*(volatile __u64 *)&b->key[w] != key)
				continue;
			place = *(volatile __u32 *)&b->dest[w];
			*seen = *(volatile __u32 *)&b->seen[w];
			if (*(volatile __u64 *)&b->key[w] != key) /* it is another one's by now */
				return 0;
			break;
		}
	}
	return place;
}

/* fast_place returns where an address lives, as overlay.FDB.LookupKey does, if its source
 * lives where src_at says; else 0, or FAST_MOVED for the source. A source that is to be noted
 * again is told to the worker.
 */
#define FAST_MOVED FAST_STATIC

static __always_inline __u32 fast_place(__u32 queue, __u64 src, __u32 src_at, __u64 dst, __u32 now)
{
	__u32 head = queue * (fast_fdb_mask + 2), seen = 0, place;
	struct fast_bucket_head *ages = bpf_map_lookup_elem(&fast_fdb, &head);

	if (!ages)
		return FAST_MOVED;
	place = fast_entry(head, src, &seen);
	if ((place & ~FAST_STATIC) != src_at)
		return FAST_MOVED;
	if (!(place & FAST_STATIC)) {
		if ((__s32)(now - seen) > (place & PLACE_LOCAL ? ages->doubt : ages->age))
			return FAST_MOVED;
		if ((__s32)(now - seen) > ages->refresh) {
			__u32 i = queue * FAST_TOUCHED + ((__u32)src * 0x9E3779B1 >> 24);
			__u64 *word = bpf_map_lookup_elem(&fast_touched, &i);

			if (word)
				*(volatile __u64 *)word = src;
		}
	}
	place = fast_entry(head, dst, &seen);
	if (!(place & FAST_STATIC) && (__s32)(now - seen) > (place & PLACE_LOCAL ? ages->doubt : ages->age))
		return 0;
	return place & ~FAST_STATIC;
}

/* fast_unfinished says whether the checksum of a frame, which begins so far into what came, was
 * left to a network card (overlay.FinishChecksum), or cannot be seen. Where its headers lie is
 * as dissect has it.
 */
static __always_inline int fast_unfinished(struct xdp_md *ctx, __u32 at, __u32 flags, __u32 l3, __u32 l4)
{
	void *eth = (void *)(long)ctx->data + (at & 0x3f), *end = (void *)(long)ctx->data_end, *ip, *field;
	__u32 stop, len;
	__u64 sum;
	__u16 stored;
	__u8 proto;

	if (!(flags & LOOM_PORTS))
		return 0;
	ip = eth + (l3 & 0xff);
	if (flags & LOOM_IPV4) {
		if (ip + IPV4_LEN > end)
			return 1;
		sum = (__u64)load32(ip + 12) + load32(ip + 16);
		stop = (l3 & 0xff) + be16(ip + 2);
		proto = load8(ip + 9);
	} else {
		if (ip + IPV6_LEN > end)
			return 1;
		sum = (__u64)load32(ip + 8) + load32(ip + 12) + load32(ip + 16) + load32(ip + 20) +
		      load32(ip + 24) + load32(ip + 28) + load32(ip + 32) + load32(ip + 36);
		stop = (l3 & 0xff) + IPV6_LEN + be16(ip + 4);
		proto = load8(ip + 6);
	}
	if (proto != PROTO_TCP && proto != PROTO_UDP)
		return 0;
	l4 &= 0xff;
	len = stop - l4;
	l4 += proto == PROTO_TCP ? 16 : 6;
	field = eth + l4;
	if (field + 2 > end || stop > end - eth || l4 + 2 > stop)
		return 1;
	stored = load16(field);
	if (!stored)
		return 0;
	sum += ((__u32)proto << 8) + bpf_htons(len) + (__u16)~stored;
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum >> 16 & 0xffff) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum == 0 || sum == 0xffff;
}

/* fast_ecn combines ECN of a tunnel and of the frame in it (RFC 6040 §4.2), if the frame
 * stays as it is or is to be marked. False for all else. With write it is done. The outer
 * codepoint says that the transport does ECN.
 */
FAST_FUNCTION int fast_ecn(struct xdp_md *ctx, __u32 outer, __u32 flags, __u32 l3, int write)
{
	void *ip = (void *)(long)ctx->data + FAST_INNER + (l3 & 0xff);
	__u8 inner;

	if (!(flags & (LOOM_IPV4 | LOOM_IPV6)))
		return outer != ECN_CE;
	if (ip + IPV4_LEN > (void *)(long)ctx->data_end)
		return 0;
	inner = (flags & LOOM_IPV4 ? load8(ip + 1) : load8(ip + 1) >> 4) & ECN_MASK;
	if (inner == outer || inner == ECN_CE)
		return 1;
	if (outer != ECN_CE)
		return !inner; /* a spine that changes ECT(0) to ECT(1), or back */
	if (!inner)
		return 0;
	if (!write)
		return 1;
	if (flags & LOOM_IPV6) {
		load8(ip + 1) |= ECN_CE << 4;
	} else {
		__u16 was = load16(ip);

		load8(ip + 1) |= ECN_CE;
		load16(ip + 10) = ~fold((__u32)(__u16)~load16(ip + 10) + (__u16)~was + load16(ip)); /* RFC 1624 */
	}
	return 1;
}

/* fast_strip takes a frame out of its tunnel and gives it a tag, if vlan is not 0. */
static __always_inline int fast_strip(struct xdp_md *ctx, __u32 vlan)
{
	void *p;

	if (!vlan)
		return bpf_xdp_adjust_head(ctx, FAST_INNER) == 0;
	if (bpf_xdp_adjust_head(ctx, FAST_INNER - VLAN_LEN))
		return 0;
	p = (void *)(long)ctx->data;
	if (p + VLAN_LEN + ETH_LEN > (void *)(long)ctx->data_end)
		return 0;
	load64(p) = load64(p + VLAN_LEN);
	load32(p + 8) = load32(p + VLAN_LEN + 8);
	load16(p + 12) = bpf_htons(ETHERTYPE_VLAN);
	load16(p + 14) = bpf_htons(vlan);
	return 1;
}

/* fast_hear notes what a packet says of its path and of its sender's. */
static __always_inline void fast_hear(struct fast_heard *from, __u32 word, __u32 len)
{
	__u32 ce = word >> 17 & 7, tag = word >> 20 & (FAST_TAGS - 1), *w;

	from->frames++;
	from->bytes += len;
	if (!(word & FABRIC_CAPABLE))
		return;
	from->capable++;
	from->came[tag]++;
	w = &from->ce[tag];
	*w = (*w & ~FAST_METRIC) + FAST_METRIC + 1 + ce;
	if (ce) {
		from->congested++;
		if (ce > fast_top_metric / 2)
			from->hot[tag]++;
	}
	if (word & FABRIC_FEEDBACK) {
		from->feedback++;
		w = &from->fed[word >> 13 & (FAST_TAGS - 1)];
		*w = (*w & ~FAST_METRIC) + FAST_METRIC + 1 + (word >> 10 & 7);
	}
}

/* fast_believable says whether user space takes what a header says of paths. */
static __always_inline int fast_believable(const struct fast_leaf *t, __u32 word)
{
	if ((word >> 17 & 7) > fast_top_metric)
		return 0;
	return !(word & FABRIC_FEEDBACK) ||
	       ((word >> 10 & 7) <= fast_top_metric && t->tags >> (word >> 13 & (FAST_TAGS - 1)) & 1);
}

/* fast_check returns FAST_GONE for a frame that is plain VXLAN as user space accepts it, and
 * tells the first word of its VXLAN header.
 */
static __always_inline int fast_check(const struct frame *f, const struct fast_port *p, const struct fast_leaf *t, __u32 *word)
{
	void *ip = f->start + ETH_LEN, *vx = f->start + FAST_INNER - VXLAN_LEN;
	enum vxlan_kind kind;

	if (!fast_plain(f) || f->start + FAST_INNER + ETH_LEN > f->end || f->len < FAST_INNER + ETH_LEN ||
	    be16(ip + 2) != f->len - ETH_LEN || be16(ip + IPV4_LEN + 4) != f->len - ETH_LEN - IPV4_LEN ||
	    load32(f->start) != load32(p->mac) || load16(f->start + 4) != load16(p->mac + 4))
		return FAST_ODD;
	kind = vxlan_kind(vx);
	if (kind != VXLAN_RFC7348 && kind != VXLAN_CAPABLE)
		return FAST_ODD;
	*word = kind == VXLAN_CAPABLE ? bpf_ntohl(load32(vx)) : 0;
	return *word && !fast_believable(t, *word) ? FAST_ODD : FAST_GONE;
}

/* fast_account counts a frame that goes to its access port. */
static __always_inline void fast_account(__u32 cpu, __u32 index, __u32 port, __u32 came, __u32 left, struct fast_passage *passed)
{
	fast_count(&fast_entered, cpu * FAST_NETWORKS + index, came - FAST_INNER);
	passed->frames++;
	passed->in_bytes += came;
	passed->out_bytes += left;
	fast_add(&fast_sent, cpu * fast_port_count + port, left);
}

/* fast_deliver sends a frame on to its access port, or says why user space has to. The
 * tenant's frame has this hash, and its headers lie as dissect has it.
 */
FAST_FUNCTION int fast_deliver(struct xdp_md *ctx, __u32 hash, __u32 flags, __u32 l3, __u32 l4)
{
	__u32 copy, i, cpu, queue = ctx->rx_queue_index, vlan, port, word, peer, index, place;
	struct frame f = whole(ctx);
	void *eth = f.start + FAST_INNER;
	struct fast_passage *passed;
	struct fast_heard *heard;
	struct fast_vlans *vlans;
	struct fast_port *p;
	struct fast_leaf *t;
	__u64 src, dst, now;
	__u8 tos;

	i = fast_enter(&copy, &p, &now);
	if (i != FAST_GONE)
		return i;
	t = bpf_map_lookup_elem(&fast_leaf, &copy);
	if (!t)
		return FAST_OFF;
	i = fast_check(&f, p, t, &word);
	if (i != FAST_GONE)
		return i;
	if (eth + ETH_LEN > f.end) /* fast_check has seen to that */
		return FAST_ODD;
	tos = load8(f.start + ETH_LEN + 1) & ECN_MASK;
	if ((tos && !fast_ecn(ctx, tos, flags, l3, 0)) || fast_unfinished(ctx, FAST_INNER, flags, l3, l4))
		return FAST_ODD;
	peer = fast_vtep(t, load32(f.start + ETH_LEN + 12));
	if (!(peer >> 16 >> (p->tag & (FAST_TAGS - 1)) & 1))
		return FAST_UNBELIEVED;
	peer &= FAST_PEERS - 1;
	index = fast_network(t, bpf_ntohl(load32(eth - 4)) >> 8, peer);
	if (index >= FAST_NETWORKS)
		return FAST_NETWORK;

	if (load8(eth) & 1)
		return FAST_DESTINATION;
	src = src_mac(eth) | (__u64)index << NETWORK_SHIFT;
	dst = dst_mac(eth) | (__u64)index << NETWORK_SHIFT;
	place = fast_place(queue, src, PLACE_REMOTE | peer, dst, now >> TICK_SHIFT);
	if (place == FAST_MOVED)
		return FAST_SOURCE;
	if (!(place & PLACE_LOCAL))
		return FAST_DESTINATION;

	port = place & 0xffff;
	vlan = place >> PLACE_VLAN_SHIFT & VID_MASK;
	if (port >= fast_port_count)
		return FAST_HOP;
	i = copy * fast_port_count + port;
	vlans = bpf_map_lookup_elem(&fast_vlans, &i);
	p = bpf_map_lookup_elem(&fast_ports, &i);
	if (!vlans || !p || !p->out || f.len - FAST_INNER > p->max_frame)
		return FAST_HOP;
	if (vlans->network[vlan] != index + 1)
		return FAST_DESTINATION;
	if (!p->keep_tags && is_tag(be16(eth + 12)))
		return FAST_ODD;

	cpu = bpf_get_smp_processor_id();
	i = (cpu * fast_port_count + port_number) * fast_port_count + port;
	passed = bpf_map_lookup_elem(&fast_passed, &i);
	i = cpu * FAST_PEERS + peer;
	heard = bpf_map_lookup_elem(&fast_heard, &i);
	if (!passed || !heard || !fast_ordered(ctx, hash))
		return FAST_ORDER;
	if (!fast_send(port))
		return FAST_HOP;
	if (tos == ECN_CE)
		fast_ecn(ctx, tos, flags, l3, 1);
	if (!fast_strip(ctx, vlan))
		return FAST_HOP;
	fast_hear(heard, word, f.len);
	fast_account(cpu, index, port, f.len, f.len - FAST_INNER + (vlan ? VLAN_LEN : 0), passed);
	return FAST_GONE;
}

/* loom_uplink_fast is loom_uplink, but for the frames that it forwards itself. */
SEC("xdp")
int loom_uplink_fast(struct xdp_md *ctx)
{
	struct frame f = arrived(ctx), in = {};
	struct loom_meta m = {};
	__u32 l4 = to_us(&f);
	int why = FAST_ODD;

	if (!l4 && (vtep_addr || !behind_extension(&f) || !to_vtep6(&f)))
		return not_vxlan(ctx, &f);
	if (l4)
		m.inner = inner(&f, l4, &in);
	if (!m.inner || !dissect(&in, &m))
		m.inner = 0;
	else if (m.inner == FAST_INNER)
		why = fast_deliver(ctx, m.hash, m.flags, m.l3, m.l4);
	if (why == FAST_GONE)
		return count(LOOM_FAST, XDP_REDIRECT);
	if (why == FAST_HUNG || redirect_to(ctx) != XDP_REDIRECT)
		return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
	fast_add(&fast_slow, (bpf_get_smp_processor_id() * fast_port_count + port_number) * FAST_SLOWS + why, 1);
	if (m.inner && fast_note(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

#endif
