// What has been seen: layouts, frames and events, in the order of time.

export class Store {
  constructor() {
    this.clear();
  }

  clear() {
    this.hello = null;
    this.layouts = new Map();
    this.frames = [];
    this.events = [];
    this.keep = 0; // ms; 0: all
    this.most = {}; // largest values so far, for scales
  }

  /** add takes in a message. It returns its type; "" for one that is known. */
  add(m) {
    switch (m.type) {
      case "hello":
        this.hello = m;
        this.keep = m.keep_ms;
        return m.type;
      case "layout":
        if (!this.layouts.has(m.id)) this.layouts.set(m.id, describe(m));
        return m.type;
      case "frame": return this.addFrame(m);
      case "event": return this.addEvent(m);
      case "error": throw new Error(m.error);
    }
    return "";
  }

  addFrame(m) {
    const layout = this.layouts.get(m.layout);
    if (!layout || (this.frames.length && m.t <= this.frames.at(-1).t)) return "";
    const traffic = m.host_in.reduce((a, b) => a + b, 0);
    this.frames.push({
      t: m.t, layout, why: m.why || {}, traffic,
      nodes: Uint8Array.from(m.nodes), hostIn: Float64Array.from(m.host_in), hostOut: Float64Array.from(m.host_out),
      links: Uint8Array.from(m.links || []), up: Float64Array.from(m.up || []), down: Float64Array.from(m.down || []),
      paths: Uint8Array.from(m.paths || []), metric: Int8Array.from(m.metric || []),
      rtt: Float32Array.from(m.rtt_us || []), loss: Float32Array.from(m.loss_ppm || []),
      flowlets: m.flowlets, reorder: m.reorder, drops: m.drops,
    });
    for (const x of m.rtt_us || []) if (x > (this.most.rtt || 0)) this.most.rtt = x;
    if (traffic > (this.most.traffic || 0)) this.most.traffic = traffic;
    this.trim();
    return "frame";
  }

  addEvent(m) {
    const last = this.events.at(-1);
    if (last && (m.t < last.t || this.events.some((e) => e.t === m.t && e.text === m.text && e.node === m.node))) return "";
    this.events.push(m);
    return "event";
  }

  trim() {
    if (!this.keep) return;
    const since = this.frames.at(-1).t - this.keep;
    let n = 0;
    while (this.frames[n].t < since) n++;
    if (n > 30) { // now and then, not with each frame
      this.frames.splice(0, n);
      while (this.events.length && this.events[0].t < since) this.events.shift();
      const used = new Set(this.frames.map((f) => f.layout.id));
      for (const id of this.layouts.keys()) if (!used.has(id) && id < this.frames[0].layout.id) this.layouts.delete(id);
    }
  }

  /** at returns the place of the last frame that is not after t. */
  at(t) {
    let lo = 0, hi = this.frames.length - 1;
    while (lo < hi) {
      const mid = (lo + hi + 1) >> 1;
      if (this.frames[mid].t <= t) lo = mid; else hi = mid - 1;
    }
    return lo;
  }
}

/** describe adds to a layout what its parts are looked up by. */
function describe(m) {
  const l = { ...m };
  l.leaves = m.nodes.map((n, i) => ({ ...n, i })).filter((n) => n.leaf);
  l.index = new Map(m.nodes.map((n, i) => [n.name, i]));
  l.targets = []; // columns of the heat map: names
  l.sources = []; // rows: nodes' places
  l.uplinks = 0; // most that a leaf has
  const at = new Map();
  for (const [i, p] of m.paths.entries()) {
    if (!l.targets.includes(p.to)) l.targets.push(p.to);
    if (!l.sources.includes(p.from)) l.sources.push(p.from);
    at.set(`${p.from}/${p.to}/${p.uplink}`, i);
  }
  const order = new Map(m.nodes.map((n, i) => [n.name, i]));
  const rank = (name) => order.get(name) ?? 1e6;
  l.targets.sort((a, b) => rank(a) - rank(b));
  l.ports = new Map(); // of a source: its uplinks in order
  for (const p of m.paths) {
    const list = l.ports.get(p.from) || [];
    if (!list.some((x) => x.uplink === p.uplink)) list.push({ uplink: p.uplink, port: p.port });
    l.ports.set(p.from, list);
    l.uplinks = Math.max(l.uplinks, list.length);
  }
  for (const list of l.ports.values()) list.sort((a, b) => a.uplink - b.uplink);
  l.path = (from, to, uplink) => at.get(`${from}/${to}/${uplink}`) ?? -1;
  return l;
}
