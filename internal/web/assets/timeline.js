// The time line: which moment is shown, and how it goes on.
import { $, h, set, text, clock, ago, dark, palette } from "./util.js";

export class Timeline {
  constructor(on) {
    this.on = on; // {seek(i), live(), toggle(), speed(x)}
    this.input = $("scrub");
    this.canvas = $("track");
    this.input.addEventListener("input", () => on.seekTime(Number(this.input.value)));
    // A range of milliseconds has too fine steps for keys.
    this.input.addEventListener("keydown", (e) => {
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -30, PageUp: 30 }[e.key];
      if (by) { e.preventDefault(); on.step(by); }
    });
    $("live").addEventListener("click", () => on.live());
    $("play").addEventListener("click", () => on.toggle());
    $("speed").addEventListener("change", () => on.speed(Number($("speed").value)));
    // The observer says how large the track is: to ask for it in each picture would have the
    // page laid out once more.
    new ResizeObserver(([e]) => { this.size = e.contentRect; this.key = ""; if (this.store) this.paint(this.store); }).observe(this.canvas.parentElement);
  }

  /** draw shows the moment of a frame. */
  draw(store, f, mode, source) {
    this.store = store;
    const first = store.frames[0].t, last = store.frames.at(-1).t;
    set(this.input, "min", first);
    set(this.input, "max", Math.max(last, first + 1));
    this.input.value = f.t;
    const when = mode === "live" ? "now" : source === "file" ? `${ago(f.t - first)} into the file` : `${ago(last - f.t)} ago`;
    text($("moment"), `${clock(f.t)} ${when}`);
    set(this.input, "aria-valuetext", `${clock(f.t)}, ${when}`);
    set($("live"), "aria-pressed", mode === "live");
    $("live").hidden = source === "file" && !this.on.canLive();
    text($("live"), source === "file" ? "Back to live" : "Live");
    text($("play"), mode === "paused" ? "Play" : "Pause");
    this.paint(store);
  }

  /** paint draws traffic and events behind the handle. */
  paint(store) {
    const frames = store.frames, { width: w, height: hgt } = this.size ?? { width: 0, height: 0 };
    const key = `${frames.length} ${frames[0]?.t} ${frames.at(-1)?.t} ${store.events.length} ${w} ${dark()}`;
    if (key === this.key || !frames.length || !w) return;
    this.key = key;
    const scale = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = w * scale;
    this.canvas.height = hgt * scale;
    const c = this.canvas.getContext("2d"), css = palette(dark());
    c.scale(scale, scale);
    const first = frames[0].t, span = Math.max(1, frames.at(-1).t - first);
    const inset = 8, x = (t) => inset + ((t - first) / span) * (w - 2 * inset);
    const top = Math.max(1, ...frames.map((f) => f.traffic));
    c.fillStyle = css.track;
    c.beginPath();
    c.moveTo(x(first), hgt);
    for (const f of frames) c.lineTo(x(f.t), hgt - 2 - (f.traffic / top) * (hgt - 8));
    c.lineTo(x(frames.at(-1).t), hgt);
    c.fill();
    for (const e of store.events) {
      if (e.level === "info" || e.t < first) continue;
      c.fillStyle = css[e.level];
      c.fillRect(Math.round(x(e.t)) - 1, 0, 2, e.level === "good" ? 6 : 10);
    }
  }
}

const icons = { bad: "✕", warn: "!", good: "✓", info: "i" };
const words = { bad: "failure", warn: "warning", good: "recovered", info: "note" };

/** Events lists what happened, the newest first. */
export class Events {
  constructor(list, level, seekTime) {
    this.list = list;
    this.level = level;
    this.seekTime = seekTime;
    level.addEventListener("change", () => { this.count = -1; this.draw(this.store, this.until); });
  }

  draw(store, until) {
    this.store = store;
    this.until = until;
    let n = store.events.length;
    while (n > 0 && store.events[n - 1].t > until) n--;
    const key = `${n} ${store.events[0]?.t} ${store.events[n - 1]?.t}`;
    if (key === this.key && this.count >= 0) return;
    this.key = key;
    this.count = n;
    const wanted = { all: ["bad", "warn", "good", "info"], warn: ["bad", "warn"], bad: ["bad"] }[this.level.value];
    const some = store.events.slice(Math.max(0, n - 300), n).filter((e) => wanted.includes(e.level)).reverse();
    this.list.replaceChildren(...(some.length ? some.map((e) => h("li", { "data-level": e.level },
      h("button", { type: "button", click: () => this.seekTime(e.t), title: "Show this moment" },
        h("time", {}, clock(e.t)), h("span", { class: "icon", role: "img", "aria-label": words[e.level] }, icons[e.level]),
        h("b", {}, e.node), h("span", { class: "what" }, e.text)))) : [h("li", { class: "none" }, "Nothing has happened.")]));
  }
}
