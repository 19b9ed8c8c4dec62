// The map: leaves below, spines above, each link as two strands. Strands change with each
// frame, and are drawn on a canvas; what can be pointed at or reached by keys is SVG above it.
import { h, s, set, text, amount, bits, percent, palette, ramp, tone, dark, gradient, linkStates, nodeStates, tip } from "./util.js";

const pad = 14, narrow = 44;

// Where ends of links are closer than this, a strand is a pixel wide at most: wider ones
// would cover each other, and cost four times as much to draw.
const dense = 10;

export class FabricMap {
  constructor(box, table, legend, on) {
    this.box = box;
    this.table = table;
    this.legend = legend;
    this.on = on; // {node(i), link(i)}
    this.svg = s("svg", { role: "group", "aria-label": "Map of the fabric. Arrow keys move between nodes and links, Enter shows one." });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    box.append(this.canvas, this.svg);
    this.svg.addEventListener("keydown", (e) => this.key(e));
    new ResizeObserver(() => this.resize()).observe(box);
    this.drawLegend();
  }

  drawLegend() {
    const bar = h("span", { class: "bar" });
    bar.style.background = gradient("load", dark());
    this.legend.replaceChildren(
      h("span", { class: "scale" }, h("span", {}, "load 0"), bar, h("span", {}, "100 %")),
      h("span", { class: "key" }, swatch("dead"), "dead paths"),
      h("span", { class: "key" }, swatch("down"), "down"));
  }

  resize() {
    const w = this.box.clientWidth, hgt = this.box.clientHeight;
    if (w === this.width && hgt === this.height || !w || !hgt) return;
    this.width = w;
    this.height = hgt;
    if (this.layout) {
      this.place(this.layout);
      if (this.frame) this.draw(this.frame);
    }
  }

  /** place makes the parts of a layout and puts them where they belong. */
  place(layout) {
    this.layout = layout;
    const held = this.svg.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.svg.replaceChildren();
    this.width ||= this.box.clientWidth;
    this.height ||= this.box.clientHeight;
    const { width: w, height: hgt } = this;
    set(this.svg, "viewBox", `0 0 ${w} ${hgt}`);
    set(this.svg, "width", w);
    set(this.svg, "height", hgt);
    this.scale = Math.min(2, devicePixelRatio || 1);
    this.drawn = null; // a canvas that gets a size is empty
    this.canvas.width = w * this.scale;
    this.canvas.height = hgt * this.scale;
    this.canvas.style.width = `${w}px`;
    this.canvas.style.height = `${hgt}px`;
    const rows = [layout.nodes.map((_, i) => i).filter((i) => !layout.nodes[i].leaf), layout.nodes.map((_, i) => i).filter((i) => layout.nodes[i].leaf)];
    this.places = [];
    const tall = Math.max(44, Math.min(54, hgt * 0.17));
    rows.forEach((row, down) => row.forEach((i, k) => {
      const slot = (w - 2 * pad) / row.length;
      const width = Math.min(250, Math.max(8, slot - Math.min(24, slot * 0.18)));
      const x = pad + slot * (k + 0.5), y = down ? hgt - tall - 4 : 4;
      this.places[i] = { x, y, w: width, h: tall, top: !down };
    }));
    this.links = layout.links.map((l, i) => this.makeLink(l, i));
    this.attach(layout);
    this.nodes = layout.nodes.map((n, i) => this.makeNode(n, i));
    const links = s("g", {}), labels = s("g", { "aria-hidden": "true" }), cards = s("g", {}), words = s("g", { "aria-hidden": "true", class: "words" });
    for (const l of this.links) { links.append(l.g); labels.append(l.mark, l.upText, l.downText); }
    for (const n of this.nodes) { cards.append(n.g); words.append(...n.words); }
    this.svg.append(links, labels, cards, words);
    this.order = [...rows[0], ...rows[1]].map((i) => this.nodes[i].g);
    this.stops = [...rows[0].map((i) => this.nodes[i].g), ...this.links.map((l) => l.g), ...rows[1].map((i) => this.nodes[i].g)];
    const first = this.stops.find((e) => e.dataset.key === held) || this.stops[0];
    if (first) first.setAttribute("tabindex", "0");
    if (held && first) first.focus();
  }

  makeNode(n, i) {
    const p = this.places[i];
    const wide = p.w > 150, some = p.w > 90, size = Math.max(7, Math.min(15, p.w / (0.62 * Math.max(2, n.name.length) + 0.6)));
    const rect = s("rect", { x: p.x - p.w / 2, y: p.y, width: p.w, height: p.h, rx: Math.min(9, p.w / 4) });
    const name = s("text", { class: "name", x: wide ? p.x - p.w / 2 + 14 : p.x, y: p.y + (some ? p.h * 0.36 : p.h / 2), "font-size": size, "text-anchor": wide ? "start" : "middle", "dominant-baseline": "middle" }, n.name);
    const state = s("text", { class: "state", x: wide ? p.x + p.w / 2 - 14 : p.x, y: p.y + p.h * (wide ? 0.36 : 0.74), "text-anchor": wide ? "end" : "middle", "dominant-baseline": "middle" });
    const load = s("text", { class: wide ? "sub" : "sub narrow", x: wide ? p.x - p.w / 2 + 14 : p.x, y: p.y + p.h * 0.74, "text-anchor": wide ? "start" : "middle", "dominant-baseline": "middle" });
    const g = s("g", {
      class: "node", role: "button", tabindex: "-1", "data-key": `n${n.name}`, "data-node": n.name,
      click: () => this.on.node(i),
      mousemove: (e) => tip(e, this.nodeLines(i)), mouseleave: (e) => tip(e),
    }, rect);
    return { g, state, load, wide, words: some ? [name, state, load] : [name] };
  }

  makeLink(l, i) {
    const g = s("g", {
      class: "link", role: "button", tabindex: "-1", "data-key": `l${l.name}`, "data-link": l.name,
      click: () => this.on.link(i),
      mousemove: (e) => tip(e, this.linkLines(i)), mouseleave: (e) => tip(e),
    });
    const hit = s("path", { class: "hit" }), fault = s("path", { class: "fault" });
    const mark = s("g", { class: "mark" }, s("circle", { r: 9 }), s("path", { d: "M-4 -4L4 4M4 -4L-4 4" }));
    g.append(hit, fault);
    return { g, hit, fault, mark, upText: s("text", { class: "load" }), downText: s("text", { class: "load" }) };
  }

  /** attach spreads the ends of links over the edges of their nodes. */
  attach(layout) {
    const ends = layout.nodes.map(() => []);
    layout.links.forEach((l, i) => {
      ends[l.a].push({ i, far: l.b < 0 ? this.places[l.a].x : this.places[l.b].x, b: false });
      if (l.b >= 0) ends[l.b].push({ i, far: this.places[l.a].x, b: true });
    });
    ends.forEach((list, n) => {
      const p = this.places[n];
      list.sort((x, y) => x.far - y.far || x.i - y.i);
      list.forEach((e, k) => {
        const gap = (p.w - Math.min(16, p.w * 0.2)) / list.length;
        const at = { x: p.x + gap * (k - (list.length - 1) / 2), y: p.top ? p.y + p.h : p.y, gap, top: p.top };
        this.links[e.i][e.b ? "end" : "start"] = at;
      });
    });
    for (const [i, l] of this.links.entries()) {
      const a = l.start, peer = layout.links[i].b >= 0;
      l.end ||= { x: a.x, y: a.y + (a.top ? 46 : -46), gap: a.gap, top: !a.top };
      const b = l.end;
      const off = Math.max(1.2, Math.min(4.5, Math.min(a.gap, b.gap) / 7));
      const same = a.top === b.top && peer; // two nodes of one row: an arc
      const bend = same ? (a.top ? 90 : -90) : (b.y - a.y) * 0.5;
      const line = (dx) => `M${a.x + dx} ${a.y}C${a.x + dx} ${a.y + bend} ${b.x + dx} ${b.y - (same ? -bend : bend)} ${b.x + dx} ${b.y}`;
      l.up = new Path2D(line(-off));
      l.down = new Path2D(line(off));
      l.hit.setAttribute("d", line(0));
      l.fault.setAttribute("d", line(0));
      l.thick = Math.min(a.gap, b.gap) < dense ? 1 : 1.6 * off;
      // At three tenths of the curve: links cross in its middle.
      const at = same ? { x: (a.x + b.x) / 2, y: a.y + 0.75 * bend } : { x: a.x + 0.216 * (b.x - a.x), y: a.y + 0.3105 * (b.y - a.y) };
      set(l.mark, "transform", `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})`);
      l.labels = Math.min(a.gap, b.gap) >= narrow;
      for (const [t, at] of [[l.upText, a], [l.downText, b]]) {
        set(t, "x", at.x);
        set(t, "y", at.y + (at.top ? 17 : -9));
        set(t, "text-anchor", "middle");
      }
    }
  }

  draw(f) {
    if (f.layout !== this.layout) this.place(f.layout);
    this.frame = f;
    this.strands(f);
    this.links.forEach((l, i) => {
      const info = this.layout.links[i], state = linkStates[f.links[i]];
      if (l.state !== state) {
        l.state = state;
        for (const e of [l.g, l.mark, l.upText, l.downText]) set(e, "data-state", state.replace(" ", "-"));
      }
      if (l.labels) {
        text(l.upText, label("▲", f.up[i], info.a_rate, state));
        text(l.downText, info.b < 0 ? "" : label("▼", f.down[i], info.b_rate, state));
      }
      if (document.activeElement === l.g || !l.named) { set(l.g, "aria-label", this.linkLines(i).join(", ")); l.named = true; }
    });
    this.nodes.forEach((n, i) => {
      const state = nodeStates[f.nodes[i]];
      set(n.g, "data-state", state.replace(" ", "-"));
      set(n.state, "data-state", state.replace(" ", "-"));
      text(n.state, state === "ready" ? "" : state);
      text(n.load, state === "no answer" || (state !== "ready" && !n.wide) ? "" : this.loadOf(i, f, n.wide));
      if (document.activeElement === n.g || !n.named) { set(n.g, "aria-label", this.nodeLines(i).join(", ")); n.named = true; }
    });
    if (!this.table.hidden) this.drawTable();
  }

  /** strands draws what flows: the more, the wider and the stronger. */
  strands(f) {
    const isDark = dark();
    if (this.drawn?.frame === f && this.drawn.isDark === isDark) return;
    this.drawn = { frame: f, isDark };
    const c = this.canvas.getContext("2d", { alpha: false });
    c.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    c.fillStyle = palette(isDark).panel;
    c.fillRect(0, 0, this.width, this.height);
    c.lineCap = "round";
    const most = this.most(f), tones = ramp("load", isDark);
    this.links.forEach((l, i) => {
      const state = f.links[i];
      if (state === 0 || state === 3) return; // unknown, down: the dashes say so
      const info = this.layout.links[i];
      c.globalAlpha = state === 2 ? 0.45 : 1;
      for (const [strand, load, rate] of [[l.up, f.up[i], info.a_rate], [l.down, f.down[i], info.b_rate]]) {
        const share = load > 0 ? Math.min(1, load / (rate > 0 ? rate : most)) : 0;
        c.strokeStyle = tones[tone(0.16 + 0.84 * share)].fill;
        c.lineWidth = l.thick * (0.32 + 0.68 * share);
        c.stroke(strand);
      }
    });
    c.globalAlpha = 1;
  }

  /** loadOf says what a node carries. */
  loadOf(i, f, wide) {
    if (!this.layout.nodes[i].leaf) return wide ? `forwards ${bits(this.through(i, f))}` : bits(this.through(i, f));
    return wide ? `hosts ▲ ${bits(f.hostIn[i])}  ▼ ${bits(f.hostOut[i])}` : `▲ ${amount(f.hostIn[i])} ▼ ${amount(f.hostOut[i])} bit/s`;
  }

  /** most is the load of the busiest link: the measure for those whose rate is not known. */
  most(f) {
    let most = 1;
    for (const x of f.up) if (x > most) most = x;
    for (const x of f.down) if (x > most) most = x;
    return most;
  }

  /** through is what a spine sends. */
  through(i, f) {
    let sum = 0;
    this.layout.links.forEach((l, k) => {
      if (l.b === i && f.down[k] > 0) sum += f.down[k];
      if (l.a === i && f.up[k] > 0) sum += f.up[k];
    });
    return sum;
  }

  linkLines(i) {
    const l = this.layout.links[i], f = this.frame;
    if (!f) return [l.name];
    const one = (load, rate) => bits(load) + (rate > 0 && load >= 0 ? ` of ${bits(rate)}, ${percent(load / rate)}` : "");
    const lines = [`Link ${l.name}`, `▲ ${one(f.up[i], l.a_rate)}`, `▼ ${one(f.down[i], l.b_rate)}`];
    if (l.b < 0) lines.push("the other end has not been seen");
    if (f.links[i] !== 1) lines.push(linkStates[f.links[i]]);
    return lines;
  }

  nodeLines(i) {
    const n = this.layout.nodes[i], f = this.frame;
    const lines = [`${n.leaf ? "Leaf" : n.version ? "Spine" : "Node"} ${n.name}`];
    if (n.vtep) lines.push(`VTEP ${n.vtep}`);
    if (!f) return lines;
    lines.push(f.why[i] ? `${nodeStates[f.nodes[i]]}: ${f.why[i]}` : nodeStates[f.nodes[i]]);
    if (n.leaf) lines.push(`hosts send ${bits(f.hostIn[i])}, get ${bits(f.hostOut[i])}`);
    return lines;
  }

  /** key moves between nodes and links. */
  key(e) {
    const from = this.stops?.indexOf(document.activeElement) ?? -1;
    if (from < 0) return;
    if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      e.stopPropagation();
      document.activeElement.dispatchEvent(new MouseEvent("click"));
      return;
    }
    const tops = this.places.filter((p) => p.top).length;
    const band = from < tops ? 0 : from < this.stops.length - (this.nodes.length - tops) ? 1 : 2;
    const bands = [0, tops, this.stops.length - (this.nodes.length - tops), this.stops.length];
    let to = from;
    if (e.key === "ArrowRight") to = Math.min(from + 1, bands[band + 1] - 1);
    else if (e.key === "ArrowLeft") to = Math.max(from - 1, bands[band]);
    else if (e.key === "ArrowDown" && band < 2) to = bands[band + 1];
    else if (e.key === "ArrowUp" && band > 0) to = bands[band - 1];
    else return;
    e.preventDefault();
    const next = this.stops[Math.min(to, this.stops.length - 1)];
    document.activeElement.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    const [kind, name] = [next.dataset.key[0], next.dataset.key.slice(1)];
    const i = (kind === "n" ? this.layout.nodes : this.layout.links).findIndex((x) => x.name === name);
    set(next, "aria-label", (kind === "n" ? this.nodeLines(i) : this.linkLines(i)).join(", "));
    next.focus();
  }

  drawTable() {
    const f = this.frame;
    if (!f) return;
    const l = this.layout;
    const rows = l.links.map((k, i) => h("tr", { "data-state": linkStates[f.links[i]].replace(" ", "-") },
      h("th", { scope: "row" }, k.name), h("td", {}, linkStates[f.links[i]]),
      h("td", { class: "n" }, bits(f.up[i])), h("td", { class: "n" }, k.a_rate ? percent(Math.max(0, f.up[i]) / k.a_rate) : "–"),
      h("td", { class: "n" }, bits(f.down[i])), h("td", { class: "n" }, k.b_rate ? percent(Math.max(0, f.down[i]) / k.b_rate) : "–")));
    this.table.replaceChildren(h("table", {}, h("caption", { class: "hidden" }, "Links"),
      h("thead", {}, h("tr", {}, ...["Link", "State", "▲ from the leaf", "▲ load", "▼ to the leaf", "▼ load"].map((t, i) => h("th", { scope: "col", class: i > 1 ? "n" : null }, t)))),
      h("tbody", {}, ...rows)));
  }
}

function label(sign, load, rate, state) {
  if (state === "down") return "down";
  if (load < 0) return "";
  if (rate > 0 && load > 0 && load < rate / 200) return `${sign} <1%`; // it does carry something
  return rate > 0 ? `${sign} ${Math.round((100 * load) / rate)}%` : `${sign} ${bits(load).replace("bit/s", "")}`;
}

function swatch(kind) {
  return s("svg", { class: `swatch ${kind}`, width: 26, height: 10, "aria-hidden": "true" }, s("path", { d: "M1 5H25" }));
}
