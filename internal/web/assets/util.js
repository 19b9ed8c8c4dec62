// Words, numbers and colours that all parts of the page use.

/** h makes an element. Attributes that are functions listen; text stays text. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** s makes an element of SVG. */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") e.addEventListener(name, value);
    else if (value === true) e.setAttribute(name, "");
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

export const $ = (id) => document.getElementById(id);

/** set changes an attribute if it is another. */
export function set(e, name, value) {
  if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
}

/** text changes an element's text if it is another. */
export function text(e, value) {
  if (e.textContent !== value) e.textContent = value;
}

const units = ["", "k", "M", "G", "T"];

/** amount writes a number with a prefix, in three digits. */
export function amount(x, unit = "") {
  if (!(x > 0)) return unit ? `0 ${unit}` : "0";
  let i = 0;
  while (x >= 999.5 && i < units.length - 1) { x /= 1000; i++; }
  const digits = x < 9.95 && (i > 0 || x % 1) ? 1 : 0;
  return `${x.toFixed(digits)}${unit || units[i] ? " " : ""}${units[i]}${unit}`;
}

export const bits = (x) => (x < 0 ? "unknown" : amount(x, "bit/s"));

/** micros writes a time given in microseconds. */
export function micros(x) {
  if (!(x > 0)) return "–";
  if (x < 999.5) return `${x < 9.95 ? x.toFixed(1) : x.toFixed(0)} µs`;
  if (x < 999500) return `${(x / 1e3).toFixed(x < 99500 ? (x < 9950 ? 2 : 1) : 0)} ms`;
  return `${(x / 1e6).toFixed(2)} s`;
}

/** ppm writes a share given in parts of a million. */
export function ppm(x) {
  if (!(x > 0)) return "0 %";
  const p = x / 1e4;
  return `${p >= 9.95 ? p.toFixed(0) : p >= 0.095 ? p.toFixed(1) : p.toFixed(2)} %`;
}

export const percent = (x) => `${Math.round(100 * x)} %`;

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
export const clock = (t) => clockFormat.format(t);

/** ago writes how long something is away. */
export function ago(ms) {
  const sec = Math.round(ms / 1000);
  return sec < 60 ? `${sec} s` : `${Math.floor(sec / 60)} min ${sec % 60} s`;
}

/** dark reports whether the page is dark now. */
export function dark() {
  const t = document.documentElement.dataset.theme;
  return t === "dark" || (t !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

let read = {};

/** palette returns the style sheet's colours for pictures. They are read when they have
 * become others: to read them has the page computed its styles. */
export function palette(isDark) {
  if (read.isDark !== isDark) {
    const of = getComputedStyle(document.documentElement);
    read = { isDark };
    for (const name of ["text", "muted", "bad", "warn", "good", "panel", "none", "self", "track"]) read[name] = of.getPropertyValue(`--${name}`).trim();
  }
  return read;
}

// Ramps of one hue whose lightness alone tells more from less: blue for load, orange for
// loss. They read the same for those who see no red or green.
const stops = {
  load: {
    light: ["#eaf1f8", "#cfe1f1", "#a5cbe6", "#70add7", "#3f8dc5", "#1c6aad", "#0b4889", "#062c5c"],
    dark: ["#1d2a38", "#1f3d5b", "#215482", "#276ca8", "#3887cb", "#60a6e4", "#98caf5", "#daeeff"],
  },
  loss: {
    light: ["#eaf1f8", "#fbe0c4", "#f8c48e", "#ee9b54", "#d87122", "#b14f0c", "#843408", "#561f04"],
    dark: ["#1d2a38", "#4a3320", "#754719", "#a35b16", "#d2751f", "#f3994f", "#fcc391", "#ffe6cf"],
  },
};

const steps = 64;
const ramps = {};
for (const [kind, themes] of Object.entries(stops)) {
  ramps[kind] = {};
  for (const [theme, colours] of Object.entries(themes)) {
    const rgb = colours.map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
    ramps[kind][theme] = Array.from({ length: steps }, (_, i) => {
      const x = (i / (steps - 1)) * (rgb.length - 1), k = Math.min(Math.floor(x), rgb.length - 2), f = x - k;
      const mix = rgb[k].map((v, j) => Math.round(v + f * (rgb[k + 1][j] - v)));
      const light = mix.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
      const y = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
      return { fill: `rgb(${mix})`, ink: y > 0.19 ? "#0d1722" : "#ffffff" };
    });
  }
}

/** ramp returns the tones of a ramp, each with its colour and the ink to write on it. */
export const ramp = (kind, isDark) => ramps[kind][isDark ? "dark" : "light"];

/** tone returns the place in a ramp of a share from 0 to 1. */
export const tone = (share) => Math.max(0, Math.min(steps - 1, Math.round(share * (steps - 1))));

/** gradient is a ramp as CSS. */
export function gradient(kind, isDark) {
  return `linear-gradient(90deg, ${stops[kind][isDark ? "dark" : "light"].join(", ")})`;
}

/** nice returns the next 1, 2 or 5 times a power of ten. */
export function nice(x) {
  if (!(x > 0)) return 1;
  const p = 10 ** Math.floor(Math.log10(x));
  for (const m of [1, 2, 5]) if (m * p >= x * 0.999) return m * p;
  return 10 * p;
}

export const nodeStates = ["no answer", "not ready", "ready"];
export const linkStates = ["unknown", "up", "dead paths", "down"];
export const pathStates = ["unknown", "alive", "silent", "lossy", "narrow", "no route"];
export const isDead = (state) => state >= 2 && state <= 4;

/** hold keeps the tip of the mouse where the mouse is. */
export function tip(event, lines) {
  const t = $("tip");
  if (!lines) { t.hidden = true; return; }
  t.replaceChildren(...lines.map((line, i) => h(i ? "div" : "b", {}, line)));
  t.hidden = false;
  const w = t.offsetWidth, hgt = t.offsetHeight;
  t.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - w - 4))}px`;
  t.style.top = `${event.clientY + 18 + hgt > innerHeight ? event.clientY - hgt - 10 : event.clientY + 18}px`;
}
