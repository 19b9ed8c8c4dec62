/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The fast path of a leaf's access ports (decision 0041): a host's frame whose addresses user
 * space knows goes into its tunnel here. What this program does to it, dataplane/access.go and
 * tunnel.go do, byte for byte. Which path it takes stands in tables that the schemes have
 * filled, in Go (balance.Row); flowlets are in the worker's own tables. As in fast.h, there is
 * no scheme in it, and it drops nothing.
 *
 * Part of loom.c, which includes it.
 */
#ifndef LOOM_FAST_ACCESS_H
#define LOOM_FAST_ACCESS_H

#define FAST_CLASSES 16
#define FAST_TABLES 8       /* of flowlets, of each queue */
#define FAST_FLOWLETS 65536 /* entries of a table, at most */
#define FAST_HOPS 1024
#define FAST_ANY_NETWORK (-1)

/* Who decides about the frames of a class. */
enum fast_decider {
	FAST_BY_WORKER,  /* its scheme, about each */
	FAST_BY_FLOW,    /* a row, by the flow's hash */
	FAST_BY_FLOWLET, /* a row, about each flowlet */
};

/* dataplane's class */
struct fast_class {
	__s32 network;      /* index; FAST_ANY_NETWORK */
	__u16 first, last;  /* source or destination port; 0: any */
	__u8 proto;         /* of IP; 0: any */
	__u8 dscp;          /* plus one; 0: any */
	__u8 decider;       /* enum fast_decider */
	__u8 table;         /* its flowlets' */
	__u32 mask;         /* of that table's entries */
	__u64 limit;        /* how old the stamp of an active flowlet is at most */
	__u64 period;       /* of stamps, ns; 0: stamps are times */
};

struct fast_classes {
	__u32 count; /* the last one takes what the others do not */
	__u32 pad;
	struct fast_class of[FAST_CLASSES];
};

/* balance.Row, for a class and a peer. A place has the driver's path. */
struct fast_row {
	__u64 seed;
	__u16 vacant;  /* places without a path, as bits */
	__u8 places;   /* those included; 0: there is no path */
	__u8 weighted; /* the paths that are left have different weights */
	__u8 chosen;   /* flowlets begin on uplinks of fast_best */
	__u8 pad;
	__u16 uplinks; /* those that have a path, as bits */
	struct fast_shares shares;
	__u8 choice[FAST_PATHS]; /* by place */
	__u8 path[FAST_PATHS];   /* by own uplink: a path that starts there, plus one; 0: none that may be taken */
};

/* overlay.Tunnel, and what the data plane keeps of a path beside it. */
struct fast_tunnel {
	__u8 head[FAST_INNER];
	__u16 max_frame; /* bytes, in the tunnel */
	__u32 sum;       /* IPv4 header words but for TOS, total length and checksum */
	__u16 port;
	__u16 hop;
	__u8 uplink;
	__u8 on; /* its next hop is resolved, and its port takes frames from here */
	__u8 pad[2];
};

/* A peer's, by path. */
struct fast_tunnels {
	struct fast_tunnel of[FAST_PATHS];
};

/* What a peer is told. A byte of feedback is a tag in 4 bits above a metric in 3. */
struct fast_told {
	__u64 feedback[2];
	__u32 count;   /* of bytes */
	__u32 capable; /* it reads the fabric's fields */
};

/* What has gone to a peer. */
struct fast_went {
	__u64 frames, bytes; /* in tunnels */
	__u64 stamped;       /* frames with the fabric's fields */
	__u64 fed;           /* those of them with feedback */
	__u32 by[FAST_TAGS]; /* likewise by own LBTag */
};

/* What a class has decided. */
struct fast_begun {
	__u64 decided;                       /* frames or flowlets */
	__u64 started, moved, kept, expired; /* congestion.FlowletStats */
};

/* Written by user space. */
FAST_ARRAY(fast_classes, struct fast_classes); /* two copies */
FAST_ARRAY(fast_rows, struct fast_row);        /* two copies, by class and peer */
FAST_ARRAY(fast_tunnels, struct fast_tunnels); /* two copies, by peer */
FAST_ARRAY(fast_best, __u64);                  /* by class and peer: uplinks, and above them those on which flows stay */
FAST_ARRAY(fast_told, struct fast_told);       /* by peer */

/* Written here and by the queue's worker, whose table it is: congestion.Flowlets. */
FAST_ARRAY(fast_flowlets, __u64); /* by queue and table */

/* Written here, by CPU. */
FAST_ARRAY(fast_went, struct fast_went);       /* by peer */
FAST_ARRAY(fast_wrapped, struct fast_traffic); /* by network: tenants' frames that went into tunnels */
FAST_ARRAY(fast_switched, struct fast_traffic); /* by network: that went to another port here */
FAST_ARRAY(fast_hopped, struct fast_traffic);  /* by next hop */
FAST_ARRAY(fast_begun, struct fast_begun);     /* by class */

#define FAST_NO_CLASS 0x80000000 /* a bit beyond those of a class */

/* fast_classify is dataplane's classify. Where the frame's headers lie is as dissect has it. */
FAST_FUNCTION __u32 fast_classify(struct xdp_md *ctx, const struct fast_classes *c, __u32 flags, __u32 l3l4, __u32 network)
{
	void *start = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	void *ip = start + (l3l4 & 0xff), *l4 = start + (l3l4 >> 8 & 0xff);
	__u16 sport, dport;
	__u8 proto, dscp;

	if (!c || ip + IPV4_LEN > end || l4 + 4 > end)
		return FAST_NO_CLASS;
	if (flags & LOOM_IPV4) {
		proto = load8(ip + 9);
		dscp = load8(ip + 1) >> 2;
	} else {
		proto = load8(ip + 6);
		dscp = be16(ip) >> 6 & 0x3f;
	}
	sport = be16(l4);
	dport = be16(l4 + 2);
	for (__u32 i = 0; i < FAST_CLASSES; i++) {
		const struct fast_class *r = &c->of[i];

		if (i + 1 >= c->count)
			return i;
		if ((r->network == FAST_ANY_NETWORK || r->network == (__s32)network) && (!r->proto || r->proto == proto) &&
		    (!r->first || (sport >= r->first && sport <= r->last) || (dport >= r->first && dport <= r->last)) &&
		    (!r->dscp || r->dscp == dscp + 1))
			return i;
	}
	return FAST_NO_CLASS;
}

/* fast_row_of is balance.Row.Of; FAST_PATHS: only user space can tell. */
static __always_inline __u32 fast_row_of(const struct fast_row *r, __u32 number)
{
	if (!r)
		return FAST_PATHS;
	return fast_take(number, fast_share(&r->shares, number, r->places), r->vacant, r->places, r->weighted, r->choice);
}

/* fast_member returns the place of one of the bits that are set in the low half of a word. There
 * is one.
 */
FAST_FUNCTION __u32 fast_member(__u32 bits, __u32 number)
{
	__u32 n = bits & 0xffff;

	n = (n & 0x5555) + (n >> 1 & 0x5555);
	n = (n & 0x3333) + (n >> 2 & 0x3333);
	n = (n & 0x0f0f) + (n >> 4 & 0x0f0f);
	n = (n & 0xff) + (n >> 8);
	n = (__u64)number * n >> 32;
	for (__u32 i = 0; i < FAST_TAGS; i++) {
		__u32 is = bits >> i & 1;

		if (is && !n)
			return i;
		n -= is;
	}
	return 0;
}

/* fast_begin returns the path of a flowlet that begins, of a flow that took an uplink last,
 * as balance.Row does.
 */
static __always_inline __u32 fast_begin(const struct fast_row *r, __u32 last, __u64 best)
{
	__u32 number = bpf_get_prandom_u32(), may = best & r->uplinks;

	if (!r->chosen)
		return fast_row_of(r, number);
	if (last < FAST_TAGS && best >> (FAST_TAGS + last) & 1 && r->path[last & (FAST_TAGS - 1)])
		return r->path[last & (FAST_TAGS - 1)] - 1;
	if (!may)
		return FAST_PATHS;
	return r->path[fast_member(may, number) & (FAST_TAGS - 1)] - 1;
}

struct fast_flow {
	__u64 best; /* of fast_best, or all uplinks where that is too old */
	__u64 now;  /* user space's clock */
	__u32 hash;
	__u32 queue;
};

/* fast_flowlet returns the path of a frame: its flowlet's, or that of one which it begins
 * (CONGA §3.4).
 */
FAST_FUNCTION __u32 fast_flowlet(const struct fast_class *c, const struct fast_row *r, const struct fast_flow *f,
				 const struct fast_tunnels *tunnels, struct fast_begun *begun)
{
	const __u64 valid = 1 << 7, low = 0xff;
	__u64 *word, was, stamp;
	__u32 i, last = FAST_TAGS, path, ended = 0;

	if (!c || !r || !f || !tunnels || !begun)
		return FAST_PATHS;
	i = (f->queue * FAST_TABLES + (c->table & (FAST_TABLES - 1))) * FAST_FLOWLETS + (f->hash & c->mask & (FAST_FLOWLETS - 1));
	word = bpf_map_lookup_elem(&fast_flowlets, &i);
	if (!word)
		return FAST_PATHS;
	stamp = f->now;
	if (c->period)
		stamp = (stamp ^ 1ULL << 63) / c->period;
	stamp <<= 8;
	was = *(volatile __u64 *)word;
	if (was & valid) {
		last = was & (FAST_TAGS - 1);
		ended = (__s64)(stamp - (was & ~low)) >> 8 > (__s64)c->limit;
		path = r->path[last];
		if (!ended && path) {
			*(volatile __u64 *)word = stamp | valid | last;
			return path - 1;
		}
	}
	path = fast_begin(r, last, f->best);
	if (path >= FAST_PATHS)
		return FAST_PATHS;
	i = tunnels->of[path].uplink & (FAST_TAGS - 1);
	*(volatile __u64 *)word = stamp | valid | i;
	begun->decided++;
	begun->started++;
	if (last < FAST_TAGS) {
		if (i == last)
			begun->kept++;
		else
			begun->moved++;
		if (ended)
			begun->expired++;
	}
	return path;
}

/* fast_choice returns the path of a frame of a class to a peer; FAST_PATHS: only user space
 * can tell.
 */
static __always_inline __u32 fast_choice(struct xdp_md *ctx, const struct fast_class *c, __u32 class, __u32 peer,
					 const struct fast_row *r, const struct fast_tunnels *tunnels, __u32 hash)
{
	struct fast_flow flow = {.best = 0xffff, .hash = hash, .queue = ctx->rx_queue_index};
	__u32 i = bpf_get_smp_processor_id() * FAST_CLASSES + class, zero = 0;
	struct fast_begun *begun = bpf_map_lookup_elem(&fast_begun, &i);
	struct fast_ctl *ctl;
	__u64 *best;

	if (!begun)
		return FAST_PATHS;
	if (c->decider == FAST_BY_FLOW) {
		begun->decided++;
		return fast_row_of(r, fast_remix((__u64)hash ^ r->seed));
	}
	ctl = bpf_map_lookup_elem(&fast_ctl, &zero);
	if (!ctl)
		return FAST_PATHS;
	/* The exact clock: a gap between flowlets is shorter than what the coarse one tells apart. */
	flow.now = bpf_ktime_get_ns() - ctl->zero;
	if (r->chosen && (__s64)(flow.now - *(volatile __u64 *)&ctl->fresh) < 0) {
		i = class * FAST_PEERS + peer;
		best = bpf_map_lookup_elem(&fast_best, &i);
		if (best)
			flow.best = *(volatile __u64 *)best;
	}
	return fast_flowlet(c, r, &flow, tunnels, begun);
}

/* fast_fields returns the first half of the VXLAN header of a frame to a peer by an uplink. */
static __always_inline __u32 fast_fields(const struct fast_tunnel *t, const struct fast_told *told, struct fast_went *went, __u32 cpu)
{
	__u32 word = VXLAN_PLAIN, port = t->port, n = told->count, uplink = t->uplink & (FAST_TAGS - 1), at, byte;
	__u64 *ce;

	if (!told->capable)
		return word;
	word |= FABRIC_CAPABLE | uplink << 20;
	if (n) {
		at = (__u32)went->stamped % n;
		byte = told->feedback[at >> 3 & 1] >> (at & 7) * 8;
		word |= FABRIC_FEEDBACK | (byte >> 3 & 15) << 13 | (byte & 7) << 10;
		went->fed++;
	}
	went->stamped++;
	went->by[uplink]++;
	ce = bpf_map_lookup_elem(&fast_ce, &port);
	if (ce && *ce) {
		word |= (*ce & 7) << 17;
		fast_add(&fast_raised, cpu * fast_port_count + port, 1);
	}
	return word;
}

/* What fast_wrap has found out about a frame. */
struct fast_way {
	const struct fast_tunnel *tunnel;
	__u32 network, vni, peer;
	__u32 hash;
	__u32 tos;
	__u32 pop; /* bytes of a tag that is taken off */
};

/* fast_push puts a frame into its tunnel, and counts it. */
static __always_inline int fast_push(struct xdp_md *ctx, const struct fast_way *w, __u32 came)
{
	__u32 cpu = bpf_get_smp_processor_id(), i, len = came - w->pop, macs_low = 0, word, sum, tos;
	const struct fast_tunnel *t = w->tunnel;
	struct fast_passage *passed;
	struct fast_told *told;
	struct fast_went *went;
	__u64 macs = 0;
	void *p;

	i = (cpu * fast_port_count + port_number) * fast_port_count + t->port;
	passed = bpf_map_lookup_elem(&fast_passed, &i);
	i = w->peer;
	told = bpf_map_lookup_elem(&fast_told, &i);
	i += cpu * FAST_PEERS;
	went = bpf_map_lookup_elem(&fast_went, &i);
	if (!passed || !told || !went)
		return 0;
	p = (void *)(long)ctx->data;
	if (w->pop) {
		if (p + ETH_LEN > (void *)(long)ctx->data_end)
			return 0;
		macs = load64(p);
		macs_low = load32(p + 8);
	}
	if (bpf_xdp_adjust_head(ctx, (int)w->pop - FAST_INNER))
		return 0;
	p = (void *)(long)ctx->data;
	if (p + FAST_INNER + ETH_LEN > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(p, t->head, FAST_INNER);
	if (w->pop) {
		load64(p + FAST_INNER) = macs;
		load32(p + FAST_INNER + 8) = macs_low;
	}
	word = len + IPV4_LEN + UDP_LEN + VXLAN_LEN;
	tos = w->tos + fast_mark_ecn(t->port, w->tos, len + FAST_INNER);
	load8(p + ETH_LEN + 1) = tos;
	load16(p + ETH_LEN + 2) = bpf_htons(word);
	sum = t->sum + tos + word;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	load16(p + ETH_LEN + 10) = bpf_htons((__u16)~sum);
	load16(p + ETH_LEN + IPV4_LEN) = bpf_htons(0xc000 | ((w->hash ^ w->hash >> 14 ^ w->hash >> 28) & 0x3fff));
	load16(p + ETH_LEN + IPV4_LEN + 4) = bpf_htons(word - IPV4_LEN);
	word = fast_fields(t, told, went, cpu);
	load32(p + FAST_INNER - VXLAN_LEN) = bpf_htonl(word);
	i = w->vni << 8;
	if (word & FABRIC_CAPABLE)
		i |= (t->uplink & 15) << 4 | (w->hash & 15);
	load32(p + FAST_INNER - 4) = bpf_htonl(i);

	went->frames++;
	went->bytes += len + FAST_INNER;
	passed->frames++;
	passed->in_bytes += came;
	passed->out_bytes += len + FAST_INNER;
	fast_count(&fast_wrapped, cpu * FAST_NETWORKS + w->network, len);
	fast_count(&fast_hopped, cpu * FAST_HOPS + t->hop, len + FAST_INNER);
	fast_add(&fast_sent, cpu * fast_port_count + t->port, len + FAST_INNER);
	return 1;
}

/* fast_between sends a host's frame of a network to another port of the leaf, or says why user
 * space has to: dataplane's deliver. pop is what its own tag takes, bytes.
 */
FAST_FUNCTION int fast_between(struct xdp_md *ctx, __u32 copy, __u32 place, __u32 network, __u32 pop)
{
	__u32 i, port = place & 0xffff, vlan = place >> PLACE_VLAN_SHIFT & VID_MASK, cpu = bpf_get_smp_processor_id(), len, left;
	struct fast_passage *passed;
	struct fast_vlans *vlans;
	struct fast_port *p;
	void *start, *end;
	__u64 macs;
	__u32 low;
	__u16 type;

	if (port >= fast_port_count)
		return FAST_HOP;
	i = (copy & 1) * fast_port_count + port;
	vlans = bpf_map_lookup_elem(&fast_vlans, &i);
	p = bpf_map_lookup_elem(&fast_ports, &i);
	i = (cpu * fast_port_count + port_number) * fast_port_count + port;
	passed = bpf_map_lookup_elem(&fast_passed, &i);
	start = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	pop &= VLAN_LEN;
	if (!vlans || !p || !passed || start + ETH_LEN + VLAN_LEN > end)
		return FAST_HOP;
	len = end - start - pop;
	left = len + (vlan ? VLAN_LEN : 0);
	if (!p->out || len > p->max_frame)
		return FAST_HOP;
	if (vlans->network[vlan] != (__u16)(network + 1))
		return FAST_DESTINATION;
	type = be16(start + 12);
	if (pop)
		type = be16(start + 12 + VLAN_LEN);
	if (!p->keep_tags && is_tag(type))
		return FAST_ODD;
	if (!fast_send(port))
		return FAST_HOP;
	if (pop && vlan) {
		load16(start + 12) = bpf_htons(ETHERTYPE_VLAN);
		load16(start + 14) = bpf_htons(vlan);
	} else if (vlan) {
		if (!put_tag(ctx, bpf_htons(ETHERTYPE_VLAN), vlan))
			return FAST_HOP;
	} else if (pop) {
		macs = load64(start);
		low = load32(start + 8);
		load32(start + 4) = macs; /* from behind, as the places overlap */
		load32(start + 12) = low;
		load32(start + 8) = macs >> 32;
		if (bpf_xdp_adjust_head(ctx, VLAN_LEN))
			return FAST_HOP;
	}
	passed->frames++;
	passed->in_bytes += len + pop;
	passed->out_bytes += left;
	fast_count(&fast_switched, cpu * FAST_NETWORKS + (network & (FAST_NETWORKS - 1)), len);
	fast_add(&fast_sent, cpu * fast_port_count + port, left);
	return FAST_GONE;
}

/* fast_wrap sends a host's frame into its tunnel, or to another port, or says why user space has to. The frame has
 * this hash; where its headers lie is as dissect has it: offsets in the low bytes, flags above
 * them. tag is the one that the driver took off, and 1 above it; 0: none.
 */
FAST_FUNCTION int fast_wrap(struct xdp_md *ctx, __u32 hash, __u32 heads, __u32 tag)
{
	__u32 copy, i, vid = 0, place, class, path, flags = heads >> 16, l3 = heads & 0xff, l4 = heads >> 8 & 0xff;
	struct frame f = whole(ctx);
	struct fast_way w = {.hash = hash};
	struct fast_tunnels *tunnels;
	struct fast_classes *classes;
	struct fast_vlans *vlans;
	struct fast_row *row;
	struct fast_port *p;
	struct fast_leaf *t;
	__u64 src, dst, now;

	i = fast_enter(&copy, &p, &now);
	if (i != FAST_GONE)
		return i;
	if (!(flags & LOOM_PORTS) || f.start + ETH_LEN + VLAN_LEN > f.end)
		return FAST_ODD;
	if (tag) {
		if (p->keep_tags || flags & LOOM_VLAN)
			return FAST_ODD;
		vid = tag & VID_MASK;
	} else if (flags & LOOM_VLAN && !p->keep_tags) {
		vid = be16(f.start + ETH_LEN) & VID_MASK;
		w.pop = VLAN_LEN;
	}
	i = copy * fast_port_count + port_number;
	vlans = bpf_map_lookup_elem(&fast_vlans, &i);
	t = bpf_map_lookup_elem(&fast_leaf, &copy);
	classes = bpf_map_lookup_elem(&fast_classes, &copy);
	if (!vlans || !t || !classes)
		return FAST_OFF;
	w.network = (vlans->network[vid] - 1) & (FAST_NETWORKS - 1);
	if (!vlans->network[vid])
		return FAST_NETWORK;
	if (fast_unfinished(ctx, 0, flags, l3, l4))
		return FAST_ODD;
	if (load8(f.start) & 1)
		return FAST_DESTINATION;
	src = src_mac(f.start) | (__u64)w.network << NETWORK_SHIFT;
	dst = dst_mac(f.start) | (__u64)w.network << NETWORK_SHIFT;
	place = fast_place(ctx->rx_queue_index, src, PLACE_LOCAL | vid << PLACE_VLAN_SHIFT | port_number, dst, now >> TICK_SHIFT);
	if (place == FAST_MOVED)
		return FAST_SOURCE;
	if (!(place & (PLACE_REMOTE | PLACE_LOCAL)) || place == (PLACE_LOCAL | vid << PLACE_VLAN_SHIFT | port_number))
		return FAST_DESTINATION;
	if (!fast_ordered(ctx, hash))
		return FAST_ORDER;
	if (place & PLACE_LOCAL)
		return fast_between(ctx, copy, place, w.network, w.pop);
	w.peer = place & (FAST_PEERS - 1);

	class = classes->count > 1 ? fast_classify(ctx, classes, flags, heads & 0xffff, w.network) : 0;
	if (class & FAST_NO_CLASS)
		return FAST_SCHEME;
	class &= FAST_CLASSES - 1;
	if (classes->of[class].decider == FAST_BY_WORKER)
		return FAST_SCHEME;
	i = (copy * FAST_CLASSES + class) * FAST_PEERS + w.peer;
	row = bpf_map_lookup_elem(&fast_rows, &i);
	i = copy * FAST_PEERS + w.peer;
	tunnels = bpf_map_lookup_elem(&fast_tunnels, &i);
	if (!row || !tunnels || !row->places)
		return FAST_NO_ROUTE;
	path = fast_choice(ctx, &classes->of[class], class, w.peer, row, tunnels, hash);
	if (path >= FAST_PATHS)
		return FAST_SPREAD;
	w.tunnel = &tunnels->of[path];
	if (!w.tunnel->on || f.len - w.pop + FAST_INNER > w.tunnel->max_frame || !fast_send(w.tunnel->port))
		return FAST_HOP;
	w.vni = t->vnis[w.network];
	f = whole(ctx);
	if (f.start + l3 + 2 > f.end)
		return FAST_ODD;
	w.tos = (flags & LOOM_IPV4 ? load8(f.start + l3 + 1) : load8(f.start + l3 + 1) >> 4) & ECN_MASK;
	return fast_push(ctx, &w, f.len) ? FAST_GONE : FAST_HOP;
}

/* access_fast is access, but for the frames that it forwards itself. */
static __always_inline int access_fast(struct xdp_md *ctx, __be16 tpid, __u16 tci)
{
	struct frame f = arrived(ctx);
	struct loom_meta m = {};
	int why = FAST_ODD;

	if (!tpid && f.start + ETH_LEN <= f.end && is_link_local(f.start) && for_kernel(&f))
		return count(LOOM_PASS_LINK_LOCAL, XDP_PASS);
	if (dissect(&f, &m))
		why = fast_wrap(ctx, m.hash, m.l3 | m.l4 << 8 | (__u32)m.flags << 16, tpid ? 1 << 16 | tci : 0);
	if (why == FAST_GONE)
		return count(LOOM_FAST, XDP_REDIRECT);
	if (why == FAST_HUNG || redirect_to(ctx) != XDP_REDIRECT)
		return unserved();
	fast_add(&fast_slow, (bpf_get_smp_processor_id() * fast_port_count + port_number) * FAST_SLOWS + why, 1);
	if (tpid) {
		if (!put_tag(ctx, tpid, tci))
			return count(LOOM_DROP_NO_ROOM, XDP_DROP);
		f = whole(ctx);
		__builtin_memset(&m, 0, sizeof(m));
		dissect(&f, &m);
	}
	if (m.magic && fast_note(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

/* loom_access_fast is loom_access, but for the frames that it forwards itself. */
SEC("xdp")
int loom_access_fast(struct xdp_md *ctx)
{
	return access_fast(ctx, 0, 0);
}

/* loom_access_fast_tags is loom_access_fast for drivers that say which tag they took off. */
SEC("xdp")
int loom_access_fast_tags(struct xdp_md *ctx)
{
	__be16 tpid = 0;
	__u16 tci = 0;

	if (bpf_xdp_metadata_rx_vlan_tag(ctx, &tpid, &tci))
		tpid = 0;
	return access_fast(ctx, tpid, tci);
}

#endif
