// The page: joins what comes with what shows it.
import { $, h, text, bits, amount, dark, isDead } from "./util.js";
import { Store } from "./store.js";
import { Live, readFile } from "./stream.js";
import { FabricMap } from "./map.js";
import { HeatMap } from "./heat.js";
import { Charts } from "./charts.js";
import { Timeline, Events } from "./timeline.js";
import { Detail } from "./detail.js";

class App {
  constructor() {
    this.store = new Store(); // that is shown
    this.liveStore = this.store;
    this.source = "live"; // or file
    this.mode = "live"; // paused, playing
    this.place = -1; // of the frame that is shown
    this.speed = 1;
    this.connection = "connecting";
    this.detail = new Detail(this);
    this.map = new FabricMap($("map"), $("map-table"), $("map-legend"), {
      node: (i) => this.detail.node(this.frame.layout.nodes[i].name), link: (i) => this.detail.link(this.frame.layout.links[i].name),
    });
    this.heat = new HeatMap({ grid: $("heat-grid"), canvas: $("heat"), scroll: $("heat-scroll"), table: $("heat-table"), legend: $("heat-legend"), readout: $("heat-readout") }, { path: (i) => this.detail.path(i) });
    this.charts = new Charts($("charts"), $("charts-node"), (t) => this.seekTime(t));
    this.timeline = new Timeline({
      seekTime: (t) => this.seekTime(t), step: (n) => this.seek(this.place + n), live: () => this.goLive(), toggle: () => this.toggle(),
      speed: (x) => { this.speed = x; }, canLive: () => this.liveStore.frames.length > 0,
    });
    this.events = new Events($("events"), $("events-level"), (t) => this.seekTime(t));
    this.summary = summary();
    this.controls();
    this.live = new Live((m) => this.take(m), (c) => this.connected(c));
    this.say();
  }

  get frame() { return this.store.frames[this.place]; }

  /** take takes in a message of the fabric, also while a file is shown. */
  take(m) {
    const before = this.liveStore.frames.length, type = this.liveStore.add(m);
    if (this.source !== "live") return;
    if (type === "hello") this.say();
    if (type === "frame") {
      const gone = before + 1 - this.liveStore.frames.length;
      if (this.mode === "live") this.place = this.liveStore.frames.length - 1;
      else this.place = Math.max(0, this.place - gone);
      this.filled = false;
    }
    if (type === "frame" || type === "event") this.later();
  }

  /** later draws with the next picture of the screen, once for all that came until then. */
  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  draw() {
    const f = this.frame;
    $("empty").hidden = Boolean(f);
    document.body.classList.toggle("no-data", !f);
    if (!f) { this.say(); return; }
    this.map.draw(f);
    this.heat.draw(f, this.store.most);
    if (!this.filled) { this.filled = true; this.charts.fill(this.store.frames); }
    this.charts.at(f, this.mode === "live");
    this.timeline.draw(this.store, f, this.mode, this.source);
    this.events.draw(this.store, this.mode === "live" ? Infinity : f.t + 500);
    this.summarise(f);
    this.detail.draw(f);
    this.say();
  }

  summarise(f) {
    const l = f.layout, s = this.summary;
    const ready = f.nodes.filter((x) => x === 2).length, up = f.links.filter((x) => x === 1 || x === 2).length, dead = f.paths.filter(isDead).length;
    const drops = f.drops.reduce((a, d) => a + Object.values(d || {}).reduce((x, y) => x + y, 0), 0);
    s.set("nodes", `${ready} of ${l.nodes.length}`, ready < l.nodes.length);
    s.set("links", `${up} of ${l.links.length}`, up < l.links.length);
    s.set("dead", String(dead), dead > 0);
    s.set("traffic", bits(f.traffic));
    s.set("drops", `${amount(drops)}/s`, drops > 0, "warn");
  }

  connected(state) {
    if (state === this.connection) return;
    this.connection = state;
    this.say();
  }

  say() {
    const lost = this.source === "live" && this.connection === "lost";
    const words = this.source === "file" ? `file ${this.fileName}` : lost ? "loomweb does not answer: trying again" : this.connection === "connecting" ? "connecting" :
      this.mode === "live" ? "live" : this.mode;
    text($("status"), words);
    $("status").dataset.state = lost ? "bad" : this.source === "file" ? "file" : this.mode;
    const title = this.store.hello?.title || "";
    text($("title"), title);
    document.title = title ? `${title} – Loom` : "Loom";
    if (!this.frame) text($("empty"), lost ? "loomweb does not answer. The page shows the fabric as soon as it does." : "Waiting for the first answer of the fabric's nodes…");
  }

  // Moments.

  seek(place) {
    if (!this.store.frames.length) return;
    this.place = Math.max(0, Math.min(place, this.store.frames.length - 1));
    if (this.mode === "live") this.mode = "paused";
    this.later();
  }

  seekTime(t) { this.seek(this.store.at(t)); }

  goLive() {
    if (this.source === "file") {
      this.source = "live";
      this.show(this.liveStore);
    }
    this.mode = "live";
    this.place = this.store.frames.length - 1;
    this.filled = false;
    this.later();
  }

  toggle() {
    if (this.mode !== "paused") { this.mode = "paused"; this.later(); return; }
    if (this.place >= this.store.frames.length - 1) this.place = this.source === "file" ? 0 : this.place;
    this.mode = "playing";
    this.clockStart = { now: performance.now(), t: this.frame?.t ?? 0, speed: this.speed };
    const tick = (now) => {
      if (this.mode !== "playing") return;
      const c = this.clockStart;
      if (c.speed !== this.speed || Math.abs(this.shown - this.place) > 0) Object.assign(c, { now, t: this.frame.t, speed: this.speed });
      const place = this.store.at(c.t + (now - c.now) * this.speed);
      if (place !== this.place) { this.place = place; this.later(); }
      this.shown = this.place;
      if (this.place >= this.store.frames.length - 1 && this.source === "live") { this.goLive(); return; }
      if (this.place >= this.store.frames.length - 1) { this.mode = "paused"; this.later(); return; }
      requestAnimationFrame(tick);
    };
    this.shown = this.place;
    requestAnimationFrame(tick);
    this.later();
  }

  /** play shows a file. */
  async play(file) {
    const store = new Store();
    text($("status"), `reading ${file.name}`);
    try {
      await readFile(file, (m) => store.add(m));
      if (!store.frames.length) throw new Error("there are no snapshots in it");
    } catch (e) {
      $("status").dataset.state = "bad";
      text($("status"), `${file.name}: ${e.message}`);
      return;
    }
    this.source = "file";
    this.fileName = file.name;
    store.keep = 0;
    this.show(store);
    this.mode = "paused";
    this.place = 0;
    this.later();
  }

  show(store) {
    this.store = store;
    this.filled = false;
    this.events.count = -1;
    this.timeline.key = "";
    this.detail.close();
  }

  // Controls.

  controls() {
    for (const [button, shown, hidden, draw] of [["map-table-button", "map-table", "map", () => this.map.drawTable()], ["heat-table-button", "heat-table", "heat-scroll", () => this.heat.drawTable()]]) {
      $(button).addEventListener("click", () => {
        const table = $(shown).hidden;
        $(shown).hidden = !table;
        $(hidden).hidden = table;
        $(button).setAttribute("aria-pressed", table);
        if (table && this.frame) draw();
      });
    }
    $("heat-kind").addEventListener("change", (e) => this.heat.show(e.target.value));
    $("theme-button").addEventListener("click", () => this.theme());
    $("help-button").addEventListener("click", () => $("help").showModal());
    $("open").addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => { const [file] = $("file").files; if (file) this.play(file); $("file").value = ""; });
    document.addEventListener("dragover", (e) => e.preventDefault());
    document.addEventListener("drop", (e) => { e.preventDefault(); if (e.dataTransfer.files.length) this.play(e.dataTransfer.files[0]); });
    document.addEventListener("keydown", (e) => this.key(e));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
  }

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || $("help").open) return;
    if (e.key === "Escape") { this.detail.close(); return; }
    if (e.target.closest("input:not([type=range]):not([type=radio]), select, textarea")) return;
    const kind = { 1: "metric", 2: "rtt", 3: "loss" }[e.key];
    if (kind) {
      document.querySelector(`#heat-kind input[value=${kind}]`).checked = true;
      this.heat.show(kind);
      return;
    }
    const act = {
      " ": () => { if (!e.target.closest("button, a, summary")) { e.preventDefault(); this.toggle(); } }, l: () => this.goLive(), ",": () => this.seek(this.place - 1), ".": () => this.seek(this.place + 1),
      o: () => $("file").click(), d: () => this.theme(), "?": () => $("help").showModal(),
    }[e.key];
    if (act) act();
  }

  /** theme goes from the system's colours to the others and back. */
  theme() {
    const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const other = system === "dark" ? "light" : "dark", now = root.dataset.theme;
    root.dataset.theme = now === "auto" ? other : now === other ? system : "auto";
    try { localStorage.setItem("loom-theme", root.dataset.theme); } catch { /* no storage: for now only */ }
    this.recolour();
  }

  recolour() {
    this.map.drawLegend();
    this.filled = false;
    this.timeline.key = "";
    text($("theme-button"), { auto: "Theme", light: "Light", dark: "Dark" }[document.documentElement.dataset.theme]);
    this.later();
  }
}

/** summary makes the numbers at the top. */
function summary() {
  const items = new Map();
  for (const [key, label] of [["nodes", "nodes ready"], ["links", "links up"], ["dead", "dead paths"], ["traffic", "from hosts"], ["drops", "drops"]]) {
    const value = h("dd", {}, "–");
    $("summary").append(h("div", { "data-key": key }, h("dt", {}, label), value));
    items.set(key, value);
  }
  return {
    set(key, value, alarm, level = "bad") {
      text(items.get(key), value);
      items.get(key).dataset.level = alarm ? level : "";
    },
  };
}

export const app = new App();
export { dark };
