// The heat map: a row for each leaf, and in it a cell for each uplink towards each other
// leaf. It is drawn on a canvas, as a fabric of 32 leaves has thousands of cells; the
// same is there as a table, and as a line of text about the cell that is chosen.
import { h, $, text, palette, ramp, tone, dark, gradient, micros, ppm, nice, pathStates, isDead, tip } from "./util.js";

const kinds = {
  metric: { title: "Congestion", ramp: "load", of: (f) => f.metric, share: (x) => x / 7, show: (x) => (x < 0 ? "?" : String(x)), scale: () => ["0", "7"] },
  rtt: { title: "Round trip", ramp: "load", of: (f) => f.rtt, share: (x, most) => x / most, show: micros, scale: (most) => ["0", micros(most)] },
  loss: { title: "Loss", ramp: "loss", of: (f) => f.loss, share: (x) => (x > 0 ? Math.min(1, 0.2 + 0.2 * Math.max(0, Math.log10(x / 100))) : 0), show: ppm, scale: () => ["0", "100 %, log."] },
};

export class HeatMap {
  constructor(parts, on) {
    Object.assign(this, parts); // grid, canvas, scroll, table, legend, readout
    this.on = on; // {path(i)}
    this.kind = "metric";
    this.most = { rtt: 100 };
    this.grid.addEventListener("keydown", (e) => this.key(e));
    this.ring = h("div", { class: "ring", hidden: true });
    this.grid.append(this.ring);
    this.grid.addEventListener("focus", () => { if (!this.chosen && this.layout?.sources.length) this.choose(0, 0); });
    this.canvas.addEventListener("mousemove", (e) => this.hover(e));
    this.canvas.addEventListener("mouseleave", (e) => tip(e));
    this.canvas.addEventListener("click", (e) => {
      const c = this.cellAt(e);
      if (c) { this.choose(c.row, c.column); this.open(); }
    });
    new ResizeObserver(() => { this.measure(); this.paint(); }).observe(this.scroll);
  }

  show(kind) {
    this.kind = kind;
    this.legendKey = "";
    this.paint();
  }

  draw(f, most) {
    if (f.layout !== this.layout) {
      this.layout = f.layout;
      this.chosen = null;
      this.frame = f;
      this.measure();
    }
    this.frame = f;
    this.most.rtt = nice(Math.max(100, most.rtt || 0));
    this.paint();
    if (!this.table.hidden) this.drawTable();
  }

  /** measure finds out how large cells are. */
  measure() {
    const l = this.layout, room = this.scroll.clientWidth;
    if (!l || !room) return;
    const columns = l.targets.length * l.uplinks;
    const names = [...l.sources.map((i) => l.nodes[i].name), ...l.targets];
    const left = Math.min(120, 16 + 8 * Math.max(2, ...names.map((n) => n.length)));
    const gap = columns > 60 ? 3 : 10;
    const free = room - left - gap * (l.targets.length - 1) - 2;
    const w = Math.max(columns > 40 ? 5 : 26, Math.min(190, Math.floor((free / Math.max(1, columns)) * 10) / 10));
    const hgt = Math.max(10, Math.min(46, Math.round(Math.min(w * 0.62, 380 / Math.max(1, l.sources.length)))));
    const head = w >= 30 ? 40 : 22;
    this.size = { left, gap, w, h: w > 60 ? Math.max(34, Math.min(38, hgt)) : Math.max(hgt, w >= 26 ? 26 : 10), head, ports: w >= 30, group: w * l.uplinks + gap };
    const width = left + this.size.group * l.targets.length, height = head + l.sources.length * (this.size.h + (this.size.h > 20 ? 6 : 1)) + 2;
    this.width = Math.ceil(width);
    this.height = height;
    const scale = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = this.width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${height}px`;
    this.scale = scale;
    this.ground = ""; // a canvas that gets a size is empty
    this.mark();
  }

  /** mark puts the ring around the cell that is chosen. */
  mark() {
    this.ring.hidden = !this.chosen;
    if (!this.chosen) return;
    const { row, column } = this.chosen, z = this.size;
    Object.assign(this.ring.style, { left: `${this.left(column) - 3}px`, top: `${this.rowTop(row) - 3}px`, width: `${z.w - (z.w > 20 ? 3 : 1) + 6}px`, height: `${z.h + 6}px` });
  }

  rowTop(row) { return this.size.head + row * (this.size.h + (this.size.h > 20 ? 6 : 1)); }
  left(column) { return this.size.left + Math.floor(column / this.layout.uplinks) * this.size.group + (column % this.layout.uplinks) * this.size.w; }

  /** index is the path of a cell; -1: there is none. */
  index(row, column) {
    const l = this.layout, from = l.sources[row], port = l.ports.get(from)?.[column % l.uplinks];
    return port ? l.path(from, l.targets[Math.floor(column / l.uplinks)], port.uplink) : -1;
  }

  /** paint draws the cells that have to look otherwise than they do, and everything where
   * more than values has changed. */
  paint() {
    const f = this.frame, l = this.layout;
    if (!f || !this.size || !l.sources.length) return;
    this.drawLegend();
    const c = this.canvas.getContext("2d", { alpha: false }), isDark = dark(), kind = kinds[this.kind], css = palette(isDark);
    const words = this.size.w >= 16, values = kind.of(f), tones = ramp(kind.ramp, isDark);
    c.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    const ground = `${l.id} ${this.kind} ${this.width} ${this.height} ${isDark} ${this.scale}`;
    if (ground !== this.ground) {
      this.ground = ground;
      c.fillStyle = css.panel;
      c.fillRect(0, 0, this.width, this.height);
      this.heads(c, css);
      this.shown = { values: new Float64Array(l.paths.length), looks: new Int16Array(l.paths.length).fill(-1) };
    }
    c.textAlign = "center";
    c.textBaseline = "middle";
    const { shown } = this, plain = new Map(); // cells by tone: to change a colour costs more than to fill
    for (const cell of this.cells()) {
      const { i } = cell, state = f.paths[i], t = tone(kind.share(Math.max(0, values[i]), this.most.rtt));
      const value = words ? values[i] : Math.min(0, values[i]), look = 64 * state + t;
      if (shown.looks[i] === look && shown.values[i] === value) continue;
      shown.looks[i] = look;
      shown.values[i] = value;
      if (words || state !== 1 || value < 0) { this.cell(c, css, kind, cell, values[i], state, tones[t]); continue; }
      const list = plain.get(t);
      if (list) list.push(cell); else plain.set(t, [cell]);
    }
    for (const [t, list] of plain) {
      c.fillStyle = tones[t].fill;
      for (const { x, y, w, h } of list) c.fillRect(x, y, w, h);
    }
    this.say();
  }

  /** cells lists the cells that there are, and where: on whole pixels, which are drawn
   * sharper and faster. */
  cells() {
    const l = this.layout, z = this.size;
    if (this.listed?.size === z && this.listed.layout === l) return this.listed.cells;
    const cells = [], snap = (v) => Math.round(v * this.scale) / this.scale;
    const inner = z.w - (z.w > 20 ? 3 : 1);
    this.blocks = [];
    for (let row = 0; row < l.sources.length; row++) {
      const y = snap(this.rowTop(row)), hgt = snap(this.rowTop(row) + z.h) - y, self = l.nodes[l.sources[row]].name;
      for (let t = 0; t < l.targets.length; t++) {
        if (l.targets[t] === self) { this.blocks.push([this.left(t * l.uplinks), y]); continue; }
        for (let u = 0; u < l.uplinks; u++) {
          const column = t * l.uplinks + u, i = this.index(row, column), left = this.left(column), x = snap(left);
          if (i >= 0) cells.push({ i, x, y, w: snap(left + inner) - x, h: hgt });
        }
      }
    }
    this.listed = { size: z, layout: l, cells };
    return cells;
  }

  cell(c, css, kind, { x, y, w, h: hgt }, value, state, { fill, ink }) {
    const big = w >= 24 && hgt >= 18;
    c.fillStyle = css.panel;
    c.fillRect(x, y, w, hgt);
    if (state === 5 || state === 0 && value < 0) {
      c.fillStyle = css.none;
      box(c, x, y, w, hgt);
      if (big) { c.fillStyle = css.muted; c.font = "11px system-ui, sans-serif"; c.fillText(state === 5 && w > 52 ? "no route" : "–", x + w / 2, y + hgt / 2); }
      return;
    }
    c.fillStyle = fill;
    box(c, x, y, w, hgt);
    if (isDead(state)) {
      c.fillStyle = this.hatch(c, css);
      box(c, x, y, w, hgt);
      if (big) {
        c.lineWidth = 2;
        c.strokeStyle = css.bad;
        c.strokeRect(x + 1, y + 1, w - 2, hgt - 2);
        if (w > 52) badge(c, css, pathStates[state], x + w / 2, y + hgt / 2);
      }
      return;
    }
    if (big) {
      c.font = w >= 57 ? "600 14px system-ui, sans-serif" : "600 11px system-ui, sans-serif";
      c.fillStyle = ink;
      c.fillText(kind.show(value), x + w / 2, y + hgt / 2 + 0.5);
    }
  }

  /** heads writes the names of leaves and uplinks. */
  heads(c, css) {
    const l = this.layout, z = this.size;
    c.fillStyle = css.text;
    c.textBaseline = "middle";
    c.textAlign = "center";
    const width = l.uplinks * z.w, fits = Math.max(...l.targets.map((t) => t.length)) * 7 < width + z.gap;
    c.font = width > 28 ? "600 13px system-ui, sans-serif" : "600 9px system-ui, sans-serif";
    l.targets.forEach((name, t) => {
      const x = this.left(t * l.uplinks);
      if (fits || t % Math.ceil((name.length * 7) / (width + z.gap)) === 0) c.fillText(z.ports && width > 90 ? `to ${name}` : name, x + (width - 2) / 2, 10);
      if (!z.ports) return;
      c.save();
      c.fillStyle = css.muted;
      c.font = "11px system-ui, sans-serif";
      const ports = l.ports.get(l.sources.find((i) => l.nodes[i].name !== name) ?? l.sources[0]) || [];
      ports.forEach((p, u) => c.fillText(p.port, x + u * z.w + z.w / 2 - 1, 29, z.w - 2));
      c.restore();
    });
    c.textAlign = "left";
    c.font = z.h >= 16 ? "600 13px system-ui, sans-serif" : "600 9.5px system-ui, sans-serif";
    l.sources.forEach((i, row) => c.fillText(l.nodes[i].name, 2, this.rowTop(row) + z.h / 2, z.left - 8));
    this.cells();
    c.fillStyle = css.self; // from a leaf to itself
    for (const [x, y] of this.blocks) box(c, x, y, l.uplinks * z.w - (z.w > 20 ? 3 : 1), z.h);
  }

  hatch(c, css) {
    if (this.pattern?.css !== css) {
      const p = document.createElement("canvas");
      p.width = p.height = 8;
      const q = p.getContext("2d");
      q.fillStyle = css.panel;
      q.fillRect(0, 0, 8, 8);
      q.strokeStyle = css.bad;
      q.lineWidth = 2.4;
      q.beginPath();
      for (const d of [-8, 0, 8]) { q.moveTo(d, 8); q.lineTo(d + 8, 0); }
      q.stroke();
      this.pattern = { css, fill: c.createPattern(p, "repeat") };
    }
    return this.pattern.fill;
  }

  drawLegend() {
    const kind = kinds[this.kind], key = `${this.kind} ${this.most.rtt} ${dark()}`;
    if (key === this.legendKey) return;
    this.legendKey = key;
    const bar = h("span", { class: "bar" }), [from, to] = kind.scale(this.most.rtt);
    bar.style.background = gradient(kind.ramp, dark());
    this.legend.replaceChildren(
      h("span", { class: "scale" }, h("span", {}, from), bar, h("span", {}, to)),
      h("span", { class: "key" }, h("span", { class: "hatch", "aria-hidden": "true" }), "does not deliver"),
      h("span", { class: "key" }, h("span", { class: "blank", "aria-hidden": "true" }), "no route"));
  }

  cellAt(e) {
    const l = this.layout;
    if (!l || !this.size) return null;
    const r = this.canvas.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
    const t = Math.floor((x - this.size.left) / this.size.group), u = Math.floor((x - this.size.left - t * this.size.group) / this.size.w);
    const row = Math.floor((y - this.size.head) / (this.rowTop(1) - this.rowTop(0)));
    if (t < 0 || t >= l.targets.length || u < 0 || u >= l.uplinks || row < 0 || row >= l.sources.length) return null;
    const column = t * l.uplinks + u;
    return this.index(row, column) < 0 ? null : { row, column };
  }

  hover(e) {
    const c = this.cellAt(e);
    this.canvas.style.cursor = c ? "pointer" : "";
    tip(e, c && this.lines(this.index(c.row, c.column)));
  }

  lines(i) {
    const p = this.layout.paths[i], f = this.frame;
    const name = `${this.layout.nodes[p.from].name} → ${p.to} by ${p.port}`;
    if (f.paths[i] === 5) return [name, pathStates[5]]; // what it had is of no use
    return [name, pathStates[f.paths[i]],
      `congestion ${f.metric[i] < 0 ? "unknown" : `${f.metric[i]} of 7`}`, `round trip ${micros(f.rtt[i])}`, `loss ${ppm(f.loss[i])}`];
  }

  choose(row, column) {
    const l = this.layout;
    if (!l) return;
    const columns = l.targets.length * l.uplinks;
    for (let n = 0; n < columns && this.index(row, column) < 0; n++) column = (column + 1) % columns;
    this.chosen = { row, column };
    this.mark();
    this.say();
    const x = this.left(column) - this.size.left;
    if (x < this.scroll.scrollLeft || x + this.size.w + this.size.left > this.scroll.scrollLeft + this.scroll.clientWidth) this.scroll.scrollLeft = Math.max(0, x - 40);
  }

  /** say writes what the chosen cell says. */
  say() {
    const i = this.chosen ? this.index(this.chosen.row, this.chosen.column) : -1;
    text(this.readout, i < 0 ? "Choose a cell to ask its leaf which way a flow goes, and why." : this.lines(i).join(" · "));
  }

  open() {
    const i = this.chosen ? this.index(this.chosen.row, this.chosen.column) : -1;
    if (i >= 0) this.on.path(i);
  }

  key(e) {
    const l = this.layout;
    if (!l?.sources.length) return;
    if (!this.chosen) this.choose(0, 0);
    let { row, column } = this.chosen;
    const columns = l.targets.length * l.uplinks;
    const step = (by) => {
      for (let c = column + by; c >= 0 && c < columns; c += by) if (this.index(row, c) >= 0) return c;
      return column;
    };
    switch (e.key) {
      case "ArrowRight": column = step(1); break;
      case "ArrowLeft": column = step(-1); break;
      case "ArrowDown": row = Math.min(row + 1, l.sources.length - 1); break;
      case "ArrowUp": row = Math.max(row - 1, 0); break;
      case "Home": column = 0; break;
      case "End": column = columns - 1; while (column > 0 && this.index(row, column) < 0) column--; break;
      case "Enter": case " ": e.preventDefault(); e.stopPropagation(); this.open(); return;
      default: return;
    }
    e.preventDefault();
    this.choose(row, column);
  }

  drawTable() {
    const l = this.layout, f = this.frame;
    if (!f) return;
    let choice = this.table.querySelector("select");
    if (!choice || choice.dataset.layout !== String(l.id)) {
      choice = h("select", { "data-layout": l.id, change: () => this.drawTable() }, ...l.sources.map((i) => h("option", { value: i }, l.nodes[i].name)));
      this.rows = h("tbody");
      this.table.replaceChildren(h("label", { class: "inline" }, "From ", choice),
        h("table", {}, h("caption", { class: "hidden" }, "Paths"),
          h("thead", {}, h("tr", {}, ...["To", "Uplink", "State", "Congestion", "Round trip", "Loss", "Why"].map((t, i) => h("th", { scope: "col", class: i > 2 && i < 6 ? "n" : null }, t)))), this.rows));
    }
    const from = Number(choice.value);
    const rows = [];
    l.paths.forEach((p, i) => {
      if (p.from !== from) return;
      rows.push(h("tr", { "data-state": isDead(f.paths[i]) ? "down" : "" },
        h("th", { scope: "row" }, p.to), h("td", {}, p.port), h("td", {}, pathStates[f.paths[i]]),
        h("td", { class: "n" }, f.metric[i] < 0 ? "–" : String(f.metric[i])), h("td", { class: "n" }, micros(f.rtt[i])), h("td", { class: "n" }, ppm(f.loss[i])),
        h("td", {}, h("button", { type: "button", class: "ghost small", "data-path": i, click: () => this.on.path(i) }, "Explain"))));
    });
    const held = this.rows.contains(document.activeElement) ? document.activeElement.dataset.path : null;
    this.rows.replaceChildren(...rows);
    if (held) this.rows.querySelector(`[data-path="${held}"]`)?.focus();
  }
}

function box(c, x, y, w, hgt) {
  if (w < 16) { c.fillRect(x, y, w, hgt); return; }
  c.beginPath();
  c.roundRect(x, y, w, hgt, 3);
  c.fill();
}

/** badge writes a word on a ground of its own, as it stands on a hatch. */
function badge(c, css, word, x, y) {
  c.font = "600 11px system-ui, sans-serif";
  const w = c.measureText(word).width + 10;
  c.fillStyle = css.panel;
  c.fillRect(x - w / 2, y - 9, w, 18);
  c.fillStyle = css.bad;
  c.fillText(word, x, y + 0.5);
}
