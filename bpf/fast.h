/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later */
/* The fast path (decision 0033), and what of it is a spine's: frames that need no queue, no copy and no
 * decision that user space has not taken before are forwarded here, by tables that user
 * space writes. What this program does to a frame, dataplane/spine.go does to it, byte for
 * byte; what it is not sure of it leaves to that code, by the frame's socket. It drops
 * nothing. There is no scheme in it.
 *
 * All tables are a node's, shared by the programs of its ports. A word of 8 bytes has one
 * writer, which stores it whole. What is larger than a word has two copies: user space
 * writes the one that is not in use, and then the word that says which is.
 *
 * Never load this program for one device (BPF_F_XDP_DEV_BOUND_ONLY): see the decision.
 *
 * Part of loom.c, which includes it.
 */
#ifndef LOOM_FAST_H
#define LOOM_FAST_H

/* Set by the loader: how large the tables are. */
const volatile __u32 fast_port_count; /* ports of a copy, and rows of what is counted by port */
const volatile __u32 fast_hop_count;
const volatile __u32 fast_group_count;
const volatile __u32 fast_any_source; /* sources are not held against routes */

#define FAST_COPIES 2
#define FAST_PATHS 16     /* next hops of a group, and selectors */
#define FAST_BUCKETS 4096 /* of flows, of each ring; power of two */
#define FAST_KNOWN_BITS 10
#define FAST_KNOWN (1 << FAST_KNOWN_BITS) /* addresses of a copy whose routes are remembered */
#define FAST_HANGS 5      /* how many times as old as when it is not believed any more a beat is if user space hangs */
#define FAST_BY_HASH 0xff /* selector that leaves the choice to the hash */
#define FAST_PLACE_KEY 0x706c6163
#define FAST_NUMBER_BITS 48

/* Why a frame went to user space: exactly one is counted for each that was to be routed. */
enum fast_slow {
	FAST_OFF,        /* the tables are not in force, or not for this port */
	FAST_STALE,      /* user space has not said for long that it lives */
	FAST_ODD,        /* not plain VXLAN with data that is to be forwarded */
	FAST_UNBELIEVED, /* the source is not reached by this port */
	FAST_NO_ROUTE,   /* no next hop that this program knows */
	FAST_HOP,        /* the next hop has to be resolved, or its port needs a queue, or the frame is too long */
	FAST_SPREAD,     /* a next hop is gone, and the others have different weights */
	FAST_ORDER,      /* frames of its flow are still in user space */
	FAST_NETWORK,    /* its network is not known, or not open to its sender */
	FAST_SOURCE,     /* its source address is not known to live there */
	FAST_DESTINATION, /* it is not known where it goes, or it goes to several places */
	FAST_SCHEME,      /* the scheme of its class sees each frame */
	FAST_SLOWS,
	FAST_HUNG, /* user space hangs: its sockets are as good as none */
	FAST_GONE, /* it has been forwarded */
};

struct fast_ctl {
	__u64 state; /* 0: off; else the copy in force and 1 */
	__u64 beat;  /* CLOCK_MONOTONIC when user space was last seen to live, ns */
	__u64 dead;  /* how old beat may be, ns */
	__u64 zero;  /* CLOCK_MONOTONIC at which user space's ticks begin, ns */
	__u64 fresh; /* user space's clock until which what it has chosen for flowlets counts, ns */
};

struct fast_port {
	__u8 mac[6];
	__u16 on;        /* frames that come by it may be forwarded here */
	__u16 out;       /* a leaf's: it takes frames from here */
	__u16 max_frame; /* bytes */
	__u8 tag;        /* an uplink's LBTag */
	__u8 keep_tags;  /* an access port's: tags are tenants' own */
	__u8 pad[2];
};

struct fast_hop {
	__u8 dst[6], src[6];
	__u16 max_frame; /* bytes */
	__u16 port;
	__u16 on; /* it is resolved, and its port takes frames from here */
	__u16 pad[3];
};

/* balance.Shares */
struct fast_shares {
	__u16 keep[FAST_PATHS];
	__u8 other[FAST_PATHS];
};

/* A route's next hops: leaf.NextHops, and the places of its balance.Places. */
struct fast_group {
	__u16 vacant;  /* places without a next hop, as bits */
	__u8 places;   /* those included; 0: there is no next hop */
	__u8 weighted; /* next hops that are left have different weights */
	__u8 pad[4];
	__u8 selector[FAST_PATHS];
	struct fast_shares shares, rest;
	__u8 choice[FAST_PATHS]; /* by place: which of hops */
	__u16 hops[FAST_PATHS];
	__u64 from[4]; /* ports that packets of its destinations may come by, as bits */
};

struct fast_traffic {
	__u64 frames, bytes;
};

struct fast_device {
	__u64 netns; /* cookie */
	__u32 ifindex;
	__u32 pad;
};

#define FAST_ARRAY(name, entry)                                                                    \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(map_flags, BPF_F_MMAPABLE);                                                 \
		__uint(max_entries, 1);                                                            \
		__type(key, __u32);                                                                \
		__type(value, entry);                                                              \
	} name SEC(".maps")

/* Written by user space. A ring is a queue of a port: queue * ports + port. */
FAST_ARRAY(fast_ctl, struct fast_ctl);
FAST_ARRAY(fast_ports, struct fast_port);   /* two copies */
FAST_ARRAY(fast_hops, struct fast_hop);     /* two copies */
FAST_ARRAY(fast_groups, struct fast_group); /* two copies */
FAST_ARRAY(fast_ce, __u64);                 /* by port: metric that CE is raised to */
FAST_ARRAY(fast_chance, __u64);             /* by port: of 2^32 frames of transports with ECN, how many are marked */
FAST_ARRAY(fast_drained, __u64);            /* by ring: frames up to this number have left user space */
FAST_ARRAY(fast_out, __u64);                /* by port: the device that frames leave by; 0: none */

/* Written here. A CPU writes its own part of what is counted. */
FAST_ARRAY(fast_seq, __u64);                 /* by ring: number of the last frame to user space */
FAST_ARRAY(fast_flows, __u64);               /* by ring and bucket: number of the last one of these flows */
FAST_ARRAY(fast_known, __u64);               /* two copies: address and route; user space wipes what is not in force */
FAST_ARRAY(fast_moved, struct fast_traffic); /* by CPU, port it came in by, next hop */
FAST_ARRAY(fast_sent, __u64);                /* by CPU and port it left by: bytes */
FAST_ARRAY(fast_raised, __u64);              /* by CPU and port it left by: frames whose CE was raised */
FAST_ARRAY(fast_marked, struct fast_traffic); /* by CPU and port it left by: frames that were marked (ECN) */
FAST_ARRAY(fast_slow, __u64);                /* by CPU, port it came in by, enum fast_slow */
FAST_ARRAY(fast_losing, __u64);              /* by port it was to leave by: a hint, as all CPUs write it */
FAST_ARRAY(fast_lost, __u64);                /* by CPU, port it came in by, port it was to leave by: the driver had no room */

/* Longest-prefix matches of the two copies: the group plus one, 0: none, and whether
 * VXLAN to there is the fabric's.
 */
#define FAST_OURS 0x80000000

#define FAST_ROUTES(name)                                                                          \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_LPM_TRIE);                                               \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                              \
		__uint(max_entries, 1);                                                            \
		__type(key, struct lpm_key);                                                       \
		__type(value, __u32);                                                              \
	} name SEC(".maps")

FAST_ROUTES(fast_routes0);
FAST_ROUTES(fast_routes1);

/* Ports by device, of those in fast_out and of those that frames come in by. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct fast_device);
	__type(value, __u32);
} fast_devices SEC(".maps");

/* fast_add adds to a word that this CPU alone writes. */
#define fast_add(map, index, n)                                                                    \
	({                                                                                         \
		__u32 i_ = (index);                                                                \
		__u64 *w_ = bpf_map_lookup_elem(map, &i_);                                         \
		if (w_)                                                                            \
			*w_ += (n);                                                                \
	})

/* fast_count adds a frame to a row that this CPU alone writes. */
#define fast_count(map, index, len)                                                                \
	({                                                                                         \
		__u32 i_ = (index);                                                                \
		struct fast_traffic *w_ = bpf_map_lookup_elem(map, &i_);                           \
		if (w_) {                                                                          \
			w_->frames++;                                                              \
			w_->bytes += (len);                                                        \
		}                                                                                  \
	})

/* fast_send has a frame leave by a port, once the program says XDP_REDIRECT. Not by a map of
 * devices: a program that is bound to its own device must not have one.
 */
static __always_inline int fast_send(__u32 port)
{
	__u64 *device = bpf_map_lookup_elem(&fast_out, &port), to = device ? *(volatile __u64 *)device : 0;

	return to && bpf_redirect(to, 0) == XDP_REDIRECT;
}

static __always_inline __u32 fast_ring(struct xdp_md *ctx)
{
	return ctx->rx_queue_index * fast_port_count + port_number;
}

/* fast_ordered says whether user space has no frame of a flow that is ahead of this one. */
static __always_inline int fast_ordered(struct xdp_md *ctx, __u32 hash)
{
	__u32 i = fast_ring(ctx);
	__u64 *drained = bpf_map_lookup_elem(&fast_drained, &i), *flow;

	i = i * FAST_BUCKETS + (hash & (FAST_BUCKETS - 1));
	flow = bpf_map_lookup_elem(&fast_flows, &i);
	return flow && drained && *flow <= *(volatile __u64 *)drained;
}

/* fast_route returns what the routes of a copy say of an address in network byte order, and
 * remembers it: a lookup in a trie takes some 35 ns.
 */
static __always_inline __u32 fast_route(__u32 copy, __u32 addr)
{
	struct lpm_key key = {.prefixlen = 32, .addr = addr};
	__u32 i = copy * FAST_KNOWN + (addr * 0x9E3779B1 >> (32 - FAST_KNOWN_BITS)), *group;
	__u64 *known = bpf_map_lookup_elem(&fast_known, &i), word;

	word = known ? *(volatile __u64 *)known : 0;
	if (word >> 32 == addr)
		return word;
	group = copy ? bpf_map_lookup_elem(&fast_routes1, &key) : bpf_map_lookup_elem(&fast_routes0, &key);
	if (!group)
		return 0;
	if (known)
		*(volatile __u64 *)known = (__u64)addr << 32 | *group;
	return *group;
}

static __always_inline struct fast_group *fast_group(__u32 copy, __u32 route)
{
	__u32 i = (route & ~FAST_OURS) - 1;

	if (i >= fast_group_count) /* there is none, or no room for it */
		return 0;
	i += copy * fast_group_count;
	return bpf_map_lookup_elem(&fast_groups, &i);
}

/* fast_plain says whether a frame is an untagged, whole IPv4 datagram without options that
 * overlay.CheckOuter accepts, to the VXLAN port, with a VXLAN header.
 */
static __always_inline int fast_plain(const struct frame *f)
{
	void *ip = f->start + ETH_LEN;
	__u32 total;
	__u64 sum;

	if (ip + IPV4_LEN + UDP_LEN + VXLAN_LEN > f->end)
		return 0;
	if (be16(f->start + 12) != ETHERTYPE_IPV4 || load8(ip) != 0x45 || load8(ip + 9) != PROTO_UDP ||
	    be16(ip + 6) & IPV4_FRAGMENT || be16(ip + IPV4_LEN + 2) != vxlan_port)
		return 0;
	total = be16(ip + 2);
	if (total < IPV4_LEN + UDP_LEN + VXLAN_LEN || ETH_LEN + total > f->len)
		return 0;
	sum = (__u64)load32(ip) + load32(ip + 4) + load32(ip + 8) + load32(ip + 12) + load32(ip + 16);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum >> 16 & 0xffff) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum == 0xffff;
}

/* fast_hash is dissect's hash of a frame that fast_plain accepts. */
static __always_inline __u32 fast_hash(void *ip)
{
	__u64 h = (__u64)hash_seed ^ 0x4C6F6F6D;

	h = mix(h, load32(ip + 12) | (__u64)load32(ip + 16) << 32);
	return finish(mix(h, (__u64)PROTO_UDP << 32 | load32(ip + IPV4_LEN)));
}

/* fast_share is balance.Shares.Of. */
static __always_inline __u8 fast_share(const struct fast_shares *s, __u32 number, __u32 n)
{
	__u64 at = (__u64)number * n;
	__u32 i = at >> 32 & (FAST_PATHS - 1);

	return (__u16)(at >> 16) < s->keep[i] ? i : s->other[i];
}

/* fast_remix is balance.Remix. */
static __always_inline __u32 fast_remix(__u64 h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	return h >> 32;
}

/* fast_take is balance.Places.Of: the choice that has a place, or that a number ranks highest
 * where the place is vacant; FAST_PATHS: only user space can tell.
 */
static __always_inline __u32 fast_take(__u32 number, __u32 place, __u16 vacant, __u8 places, __u8 weighted, const __u8 *choice)
{
	__u32 best = 0, most = 0;

	place &= FAST_PATHS - 1;
	if (!(vacant >> place & 1))
		return choice[place];
	if (weighted)
		return FAST_PATHS;
	for (__u32 i = 0; i < FAST_PATHS; i++) {
		__u32 rank;

		if (i >= places || vacant >> i & 1)
			continue;
		rank = fast_remix(((__u64)number << 32 | i) ^ FAST_PLACE_KEY);
		if (rank >= most) {
			best = choice[i];
			most = rank;
		}
	}
	return best;
}

/* fast_choose is leaf.NextHops.Of; FAST_PATHS: only user space can tell. */
static __always_inline __u32 fast_choose(const struct fast_group *g, int capable, __u8 selector, __u32 hash)
{
	__u32 place;

	if (capable) {
		place = g->selector[selector & (FAST_PATHS - 1)];
		if (place == FAST_BY_HASH)
			place = fast_share(&g->rest, hash, g->places);
	} else {
		place = fast_share(&g->shares, hash, g->places);
	}
	return fast_take(hash, place, g->vacant, g->places, g->weighted, g->choice);
}

#define ECN_MASK 3
#define ECN_CE 3

/* fast_mark_ecn returns by how much ECN of a frame rises that leaves by a port, as user space has
 * it: to CE, or not at all (RFC 3168). len is the frame's length.
 */
static __always_inline __u32 fast_mark_ecn(__u32 port, __u32 ecn, __u32 len)
{
	__u64 *chance = bpf_map_lookup_elem(&fast_chance, &port);

	if (!chance || !*chance || !ecn || ecn == ECN_CE || bpf_get_prandom_u32() >= *chance)
		return 0;
	fast_count(&fast_marked, bpf_get_smp_processor_id() * fast_port_count + port, len);
	return ECN_CE - ecn;
}

/* fast_rewrite gives a frame to its next hop: MAC addresses, TTL and checksum (RFC 1624
 * §3, eqn. 3), and CE of the fabric's fields.
 */
static __always_inline void fast_rewrite(void *p, const struct fast_hop *hop, int capable, __u32 len)
{
	__u32 port = hop->port, sum, more = fast_mark_ecn(port, load8(p + ETH_LEN + 1) & ECN_MASK, len);
	__u64 *ce;
	void *ip = p + ETH_LEN, *vx = p + ETH_LEN + IPV4_LEN + UDP_LEN;

	__builtin_memcpy(p, hop->dst, 6);
	__builtin_memcpy(p + 6, hop->src, 6);
	load8(ip + 8) -= 1;
	load8(ip + 1) += more;
	sum = (__u16)~be16(ip + 10) + (__u16)~0x0100 + more;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	load16(ip + 10) = bpf_htons((__u16)~sum);
	ce = bpf_map_lookup_elem(&fast_ce, &port);
	if (capable && ce && *ce > (load8(vx + 1) >> 1 & 7)) {
		load8(vx + 1) = (load8(vx + 1) & ~0x0e) | (*ce & 7) << 1;
		fast_add(&fast_raised, bpf_get_smp_processor_id() * fast_port_count + port, 1);
	}
}

/* fast_enter finds the copy of the tables that is in force, and this port in it, and tells by
 * how much user space's clock has moved on since its ticks began. It returns FAST_GONE, or why
 * user space has to forward.
 */
static __always_inline int fast_enter(__u32 *copy, struct fast_port **port, __u64 *now)
{
	__u32 zero = 0, i;
	struct fast_ctl *ctl = bpf_map_lookup_elem(&fast_ctl, &zero);
	__u64 state = ctl ? *(volatile __u64 *)&ctl->state : 0, time;
	__s64 old;

	if (!state)
		return FAST_OFF;
	*copy = state == FAST_COPIES;
	i = *copy * fast_port_count + port_number;
	*port = bpf_map_lookup_elem(&fast_ports, &i);
	if (!*port || !(*port)->on)
		return FAST_OFF;
	time = bpf_ktime_get_coarse_ns();
	*now = time - ctl->zero;
	old = time - *(volatile __u64 *)&ctl->beat;
	if (old > (__s64)ctl->dead)
		return old > FAST_HANGS * (__s64)ctl->dead ? FAST_HUNG : FAST_STALE;
	return FAST_GONE;
}

/* fast_forward sends a frame on its way, or says why user space has to. */
static __always_inline int fast_forward(struct xdp_md *ctx, const struct frame *f)
{
	__u32 copy, i, route, path, ring, hash, cpu;
	void *ip = f->start + ETH_LEN, *vx = f->start + ETH_LEN + IPV4_LEN + UDP_LEN;
	__u64 now;
	struct fast_traffic *moved;
	struct fast_group *g;
	struct fast_port *in;
	struct fast_hop *hop;
	int capable;

	i = fast_enter(&copy, &in, &now);
	if (i != FAST_GONE)
		return i;
	if (!fast_plain(f) || ip + IPV4_LEN + UDP_LEN + VXLAN_LEN > f->end || load8(ip + 8) <= 1 ||
	    load32(f->start) != load32(in->mac) || load16(f->start + 4) != load16(in->mac + 4))
		return FAST_ODD;
	capable = (load8(vx) & 0x0f) == 0x08 && load8(vx) != 0x88 && load8(vx + 3) & FABRIC_CAPABLE;
	if (capable && (bpf_ntohl(load32(vx)) >> 7 & 7) >= 2) /* a control packet: it goes first */
		return FAST_ODD;

	if (!fast_any_source) {
		g = fast_group(copy, fast_route(copy, load32(ip + 12)));
		if (!g || !(g->from[port_number >> 6 & 3] >> (port_number & 63) & 1))
			return FAST_UNBELIEVED;
	}
	route = fast_route(copy, load32(ip + 16));
	g = route & FAST_OURS ? fast_group(copy, route) : 0;
	if (!g || !g->places)
		return FAST_NO_ROUTE;
	hash = fast_hash(ip);
	path = fast_choose(g, capable, load8(vx + 7) & 0x0f, hash);
	if (path >= FAST_PATHS)
		return FAST_SPREAD;
	i = g->hops[path];
	if (i >= fast_hop_count)
		return FAST_HOP;
	ring = i; /* for a moment: the next hop's number */
	i += copy * fast_hop_count;
	hop = bpf_map_lookup_elem(&fast_hops, &i);
	if (!hop || !hop->on || f->len > hop->max_frame)
		return FAST_HOP;
	cpu = bpf_get_smp_processor_id();
	i = (cpu * fast_port_count + port_number) * fast_hop_count + ring;
	moved = bpf_map_lookup_elem(&fast_moved, &i);
	if (!moved || !fast_ordered(ctx, hash))
		return FAST_ORDER;
	if (!fast_send(hop->port))
		return FAST_HOP;
	fast_rewrite(f->start, hop, capable, f->len);
	moved->frames++;
	moved->bytes += f->len;
	fast_add(&fast_sent, cpu * fast_port_count + hop->port, f->len);
	return FAST_GONE;
}

/* put_number writes m before the frame and, before m, the frame's number in its ring with
 * the node's mark. False when the driver gives no room.
 */
static __always_inline int put_number(struct xdp_md *ctx, const struct loom_meta *m, __u64 number)
{
	struct {
		__u64 number;
		struct loom_meta m;
	} *to;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*to)))
		return 0;
	to = (void *)(long)ctx->data_meta;
	if ((void *)(to + 1) > (void *)(long)ctx->data)
		return 0;
	to->number = number;
	to->m = *m;
	return 1;
}

const volatile __u64 fast_mark; /* above the number: tells it from what others left there */

/* fast_note numbers a frame that goes to user space, and notes the number for its flow. */
static __always_inline int fast_note(struct xdp_md *ctx, const struct loom_meta *m)
{
	__u32 ring = fast_ring(ctx), i = ring * FAST_BUCKETS + (m->hash & (FAST_BUCKETS - 1));
	__u64 *seq = bpf_map_lookup_elem(&fast_seq, &ring), *seen, number;

	if (!seq)
		return put_meta(ctx, m);
	number = *seq + 1;
	if (!put_number(ctx, m, fast_mark << FAST_NUMBER_BITS | number))
		return 0;
	*seq = number;
	seen = bpf_map_lookup_elem(&fast_flows, &i);
	if (seen)
		*seen = number;
	return 1;
}

/* loom_spine_fast is loom_spine, but for the frames that it forwards itself. */
SEC("xdp")
int loom_spine_fast(struct xdp_md *ctx)
{
	struct frame f = arrived(ctx);
	struct loom_meta m = {};
	int why = fast_forward(ctx, &f), ours;

	if (why == FAST_GONE)
		return count(LOOM_FAST, XDP_REDIRECT);
	ours = is_remote(&f);
	if (ours < 0)
		return not_vxlan(ctx, &f);
	if (!ours)
		return count(LOOM_PASS_NOT_OURS, XDP_PASS);
	if (why == FAST_HUNG || redirect_to(ctx) != XDP_REDIRECT)
		return count(LOOM_PASS_NO_SOCKET, XDP_PASS);
	fast_add(&fast_slow, (bpf_get_smp_processor_id() * fast_port_count + port_number) * FAST_SLOWS + why, 1);
	if (dissect(&f, &m) && fast_note(ctx, &m))
		return count(LOOM_REDIRECT, XDP_REDIRECT);
	return count(LOOM_REDIRECT_NO_META, XDP_REDIRECT);
}

/* What the tracepoint knows of a device. */
struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

struct net_device {
	int ifindex;
	struct {
		struct net *net;
	} nd_net;
} __attribute__((preserve_access_index));

static __always_inline __u32 *fast_device(const struct net_device *d)
{
	struct fast_device key = {.netns = d->nd_net.net->net_cookie, .ifindex = d->ifindex};

	return bpf_map_lookup_elem(&fast_devices, &key);
}

static __always_inline void fast_lose(__u32 in, __u32 out, int frames)
{
	fast_add(&fast_lost, (bpf_get_smp_processor_id() * fast_port_count + in) * fast_port_count + out, frames);
	fast_add(&fast_losing, out, frames);
}

#define FAST_NO_MAP 0x7fffffff /* what the kernel calls the map of a redirection to a device */

/* loom_fast_refused counts frames that the kernel did not give to a driver after all: one that
 * takes none, or has gone.
 */
SEC("tp_btf/xdp_redirect_err")
int loom_fast_refused(__u64 *args) /* from, program, to, error, type of map, map, device */
{
	struct fast_device key = {};
	__u32 *in, *out;

	if ((__u32)args[5] != FAST_NO_MAP)
		return 0;
	key.netns = ((struct net_device *)args[0])->nd_net.net->net_cookie;
	key.ifindex = args[6];
	in = fast_device((void *)args[0]);
	out = bpf_map_lookup_elem(&fast_devices, &key);
	if (in && out)
		fast_lose(*in, *out, 1);
	return 0;
}

/* loom_fast_lost counts what drivers did not take of what the kernel gave to them, by its own
 * account of each burst.
 */
SEC("tp_btf/xdp_devmap_xmit")
int loom_fast_lost(__u64 *args) /* from, to, sent, drops, err */
{
	__u32 *in, *out;
	int drops = args[3];

	if (drops <= 0)
		return 0;
	in = fast_device((void *)args[0]);
	out = fast_device((void *)args[1]);
	if (in && out)
		fast_lose(*in, *out, drops);
	return 0;
}

#endif
