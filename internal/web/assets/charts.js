// Rates over time: traffic, flowlets, reordering, drops.
import { h, text, amount, bits, micros, dark } from "./util.js";

/* global uPlot */

// Colours that differ for everybody (Okabe and Ito), a little lighter in the dark.
const colours = {
  light: ["#0b62a8", "#b36b00", "#00795a", "#b3400a", "#8a4a78", "#3c7ea6", "#5b6670"],
  dark: ["#6cb6ff", "#f0b429", "#4fc79a", "#ff9a62", "#e0a3cd", "#8fd0f5", "#a9b6c2"],
};

const sum = (list, of) => list.reduce((a, x) => a + (x ? of(x) : 0), 0);
const most = (list, of) => list.reduce((a, x) => Math.max(a, x ? of(x) : 0), 0);

/** pick returns a column's entries: of all nodes, or of one. */
const pick = (column, node) => (node < 0 ? Array.from(column) : [column[node]]);

const plain = [
  { id: "traffic", title: "Traffic of hosts", unit: bits, empty: "No traffic of hosts.", series: [
    { label: "sent by hosts", of: (f, n) => sum(pick(f.hostIn, n), (x) => x) },
    { label: "delivered", of: (f, n) => sum(pick(f.hostOut, n), (x) => x) },
  ] },
  { id: "flowlets", title: "Flowlets", unit: (x) => `${amount(x)}/s`, empty: "No flowlets begin.", series: [
    { label: "started", of: (f, n) => sum(pick(f.flowlets, n), (x) => x.started) },
    { label: "moved", of: (f, n) => sum(pick(f.flowlets, n), (x) => x.moved) },
    { label: "kept", of: (f, n) => sum(pick(f.flowlets, n), (x) => x.kept) },
  ] },
  { id: "reorder", title: "Reordering", unit: (x) => amount(x), empty: "Nothing waits to be in order.", series: [
    { label: "queues", of: (f, n) => sum(pick(f.reorder, n), (x) => x.queues) },
    { label: "frames waiting", of: (f, n) => sum(pick(f.reorder, n), (x) => x.waiting) },
    { label: "out of order /s", of: (f, n) => sum(pick(f.reorder, n), (x) => x.late) },
    { label: "held for", of: (f, n) => most(pick(f.reorder, n), (x) => x.hold_us) || most(pick(f.reorder, n), (x) => (x.waiting ? x.limit_us : 0)), scale: "time", unit: micros },
  ] },
];

/** reasons lists the reasons of drops, the most frequent first. */
function reasons(frames, node) {
  const total = new Map();
  for (const f of frames) for (const d of pick(f.drops, node)) for (const [r, x] of Object.entries(d || {})) total.set(r, (total.get(r) || 0) + x);
  return [...total].sort((a, b) => b[1] - a[1]).map(([r]) => r);
}

const shown = 5; // reasons; the rest together

class Chart {
  constructor(box, spec, seek) {
    this.spec = spec;
    this.seek = seek;
    this.values = h("dl", { class: "values" });
    this.plot = h("div", { class: "plot", role: "img", "aria-label": `${spec.title} over time` });
    this.none = h("p", { class: "none" });
    box.append(h("figure", { class: "chart", "data-chart": spec.id }, h("figcaption", {}, h("h3", {}, spec.title), this.values), this.plot, this.none));
    new ResizeObserver(() => this.resize()).observe(this.plot);
  }

  resize() {
    if (this.u && this.plot.clientWidth) this.u.setSize({ width: this.plot.clientWidth, height: this.plot.clientHeight });
  }

  /** build makes the plot anew: its series or its colours are others. */
  build(series) {
    this.u?.destroy();
    const isDark = dark(), ink = getComputedStyle(document.documentElement), muted = ink.getPropertyValue("--muted").trim(), grid = ink.getPropertyValue("--grid").trim();
    const axis = { stroke: muted, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const timed = series.some((s) => s.scale);
    this.palette = series.map((_, i) => colours[isDark ? "dark" : "light"][i]);
    this.u = new uPlot({
      width: this.plot.clientWidth || 300, height: this.plot.clientHeight || 130,
      padding: [8, timed ? 0 : 18, 0, 0], legend: { show: false }, cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "loom" } },
      scales: { x: { time: true }, y: { range: (_, __, hi) => [0, hi > 0 ? hi * 1.08 : 1] }, time: { range: (_, __, hi) => [0, hi > 0 ? hi * 1.08 : 1] } },
      axes: [
        { ...axis, space: 70, size: 24, values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })) },
        { ...axis, size: 54, space: 28, gap: 4, values: (_, ticks) => ticks.map((t) => short(t, this.spec.unit)) },
        ...(timed ? [{ ...axis, scale: "time", side: 1, size: 50, gap: 4, space: 28, grid: { show: false }, values: (_, ticks) => ticks.map((t) => (t ? micros(t) : "0")) }] : []),
      ],
      series: [{}, ...series.map((x, i) => ({ label: x.label, scale: x.scale || "y", stroke: this.palette[i], width: 1.6, dash: x.scale ? [5, 4] : [], points: { show: false }, fill: i === 0 && this.spec.id === "traffic" ? `${this.palette[i]}22` : undefined }))],
      hooks: { ready: [(u) => { u.over.addEventListener("click", () => { if (u.cursor.idx != null) this.seek(u.data[0][u.cursor.idx] * 1000); }); }] },
    }, [[], ...series.map(() => [])], this.plot);
    this.head = h("div", { class: "playhead" });
    this.u.over.append(this.head);
    this.items = series.map((x, i) => {
      const dot = h("span", { class: x.scale ? "dot dashed" : "dot" }), value = h("dd", {});
      dot.style.setProperty("--dot", this.palette[i]);
      return { row: h("div", {}, h("dt", {}, dot, x.label), value), value };
    });
    this.values.replaceChildren(...this.items.map((x) => x.row));
    this.series = series;
  }

  /** fill gives the plot the history. */
  fill(frames, node) {
    const series = this.spec.series || dropSeries(reasons(frames, node));
    const key = `${series.map((x) => x.label)} ${dark()}`;
    if (key !== this.key) { this.key = key; this.build(series); }
    const x = new Array(frames.length);
    for (let i = 0; i < frames.length; i++) x[i] = frames[i].t / 1000;
    let any = false;
    const data = series.map((one) => {
      const y = new Array(frames.length);
      for (let i = 0; i < frames.length; i++) {
        y[i] = node >= frames[i].nodes.length ? null : one.of(frames[i], node);
        any ||= y[i] > 0;
      }
      return y;
    });
    this.u.setData([x, ...data]);
    text(this.none, any ? "" : this.spec.empty);
  }

  /** at shows the values of a moment. */
  at(f, node, live) {
    if (!this.u) return;
    this.series.forEach((one, i) => text(this.items[i].value, (one.unit || this.spec.unit)(one.of(f, node))));
    const x = this.u.valToPos(f.t / 1000, "x");
    this.head.hidden = live || !(x >= 0);
    if (!this.head.hidden) this.head.style.transform = `translateX(${Math.round(x)}px)`;
  }
}

function short(t, unit) {
  if (!t) return "0";
  return unit(t).replace("bit/s", "b/s").replace("/s", unit === bits ? "/s" : "");
}

function dropSeries(names) {
  const one = (r) => ({ label: r.replaceAll("_", " "), of: (f, n) => sum(pick(f.drops, n), (d) => d[r] || 0) });
  const list = names.slice(0, shown).map(one);
  if (names.length > shown) {
    const rest = new Set(names.slice(shown));
    list.push({ label: "others", of: (f, n) => sum(pick(f.drops, n), (d) => Object.entries(d).reduce((a, [r, x]) => a + (rest.has(r) ? x : 0), 0)) });
  }
  return list.length ? list : [{ label: "dropped", of: () => 0 }];
}

export class Charts {
  constructor(box, choice, seek) {
    this.choice = choice;
    const drops = { id: "drops", title: "Drops by reason", unit: (x) => `${amount(x)}/s`, empty: "Nothing is dropped." };
    this.list = [...plain, drops].map((spec) => new Chart(box, spec, seek));
    choice.addEventListener("change", () => { this.fill(this.frames); if (this.frame) this.at(this.frame, this.live); });
  }

  get node() {
    const name = this.choice.value;
    return name === "" ? -1 : this.layout?.index.get(name) ?? -1;
  }

  /** select shows one node's rates; "": of all. */
  select(name) {
    this.choice.value = name;
    this.choice.dispatchEvent(new Event("change"));
  }

  fill(frames) {
    this.frames = frames;
    if (!frames?.length) return;
    const layout = frames.at(-1).layout;
    if (layout !== this.layout) {
      this.layout = layout;
      const was = this.choice.value;
      this.choice.replaceChildren(h("option", { value: "" }, "all nodes"), ...layout.nodes.map((n) => h("option", { value: n.name }, n.name)));
      this.choice.value = layout.index.has(was) ? was : "";
    }
    for (const c of this.list) c.fill(frames, this.node);
  }

  at(f, live) {
    this.frame = f;
    this.live = live;
    for (const c of this.list) c.at(f, this.node, live);
  }
}
