// The panel that says more about a path, a link or a node, and asks leaves for
// explanations.
import { $, h, bits, micros, ppm, linkStates, nodeStates, pathStates, isDead } from "./util.js";

export class Detail {
  constructor(app) {
    this.app = app;
    this.box = $("detail");
    this.body = $("detail-body");
    $("detail-close").addEventListener("click", () => this.close());
  }

  show(title, fill) {
    if (this.box.hidden) this.back = document.activeElement;
    $("detail-title").textContent = title;
    this.fill = fill;
    this.body.replaceChildren(...fill());
    this.box.hidden = false;
    document.body.classList.add("with-detail");
    $("detail-close").focus();
  }

  close() {
    if (this.box.hidden) return;
    this.box.hidden = true;
    this.refresh = null;
    document.body.classList.remove("with-detail");
    this.back?.focus?.();
  }

  /** draw brings the facts up to date; forms stay as they are. */
  draw(f) {
    if (this.box.hidden || !this.refresh) return;
    this.refresh(f);
  }

  facts(of) {
    const list = h("dl", { class: "facts" });
    this.refresh = (f) => {
      const rows = of(f);
      if (!rows) { list.replaceChildren(h("dt", {}, "gone"), h("dd", {}, "It is not part of the fabric at this moment.")); return; }
      list.replaceChildren(...rows.flatMap(([k, v]) => [h("dt", {}, k), h("dd", {}, v)]));
    };
    this.refresh(this.app.frame);
    return list;
  }

  node(name) {
    this.show(name, () => [this.facts((f) => {
      const i = f.layout.index.get(name);
      if (i === undefined) return null;
      const n = f.layout.nodes[i];
      const rows = [["role", n.leaf ? "leaf" : n.version ? "spine" : "unknown"], ["state", f.why[i] ? `${nodeStates[f.nodes[i]]}: ${f.why[i]}` : nodeStates[f.nodes[i]]]];
      if (n.vtep) rows.push(["VTEP", n.vtep]);
      if (n.version) rows.push(["version", n.version]);
      if (n.leaf) {
        const r = f.reorder[i];
        rows.push(["hosts send", bits(f.hostIn[i])], ["hosts get", bits(f.hostOut[i])],
          ["reordering", r.queues || r.waiting ? `${r.queues} queues, ${r.waiting} frames (${r.bytes} bytes) wait` : "nothing waits"]);
      }
      const drops = Object.entries(f.drops[i] || {}).sort((a, b) => b[1] - a[1]);
      rows.push(["drops", drops.length ? drops.map(([r, x]) => `${r} ${x}/s`).join(", ") : "none"]);
      return rows;
    }), h("p", {}, h("button", { type: "button", click: () => this.app.charts.select(name) }, `Rates of ${name} only`))]);
  }

  link(name) {
    this.show(`Link ${name}`, () => [this.facts((f) => {
      const i = f.layout.links.findIndex((l) => l.name === name);
      if (i < 0) return null;
      const l = f.layout.links[i], dead = f.layout.paths.filter((p, k) => p.link === i && isDead(f.paths[k]));
      return [["state", linkStates[f.links[i]]], ["▲ rate", `${bits(f.up[i])} of ${bits(l.a_rate || -1)}`], ["▼ rate", `${bits(f.down[i])} of ${bits(l.b_rate || -1)}`],
        ["ends", l.b < 0 ? `${f.layout.nodes[l.a].name} ${l.a_port}; the other end has not been seen` : `${f.layout.nodes[l.a].name} ${l.a_port}, ${f.layout.nodes[l.b].name} ${l.b_port}`],
        ["paths that do not deliver", dead.length ? dead.map((p) => `to ${p.to}`).join(", ") : "none"]];
    })]);
  }

  path(i) {
    const l = this.app.frame.layout, p = l.paths[i], from = l.nodes[p.from].name;
    this.show(`${from} → ${p.to} by ${p.port}`, () => {
      const parts = [this.facts((f) => {
        const k = f.layout.path(f.layout.index.get(from), p.to, p.uplink);
        if (k < 0) return null;
        if (f.paths[k] === 5) return [["state", pathStates[5]]];
        return [["state", pathStates[f.paths[k]]], ["congestion", f.metric[k] < 0 ? "unknown" : `${f.metric[k]} of 7`], ["round trip", micros(f.rtt[k])], ["loss", ppm(f.loss[k])]];
      })];
      if (this.app.source === "file") {
        parts.push(h("p", { class: "muted" }, "A file answers no questions: which way a flow goes can be asked of a running leaf."));
      } else {
        this.explain(parts, from, p);
      }
      return parts;
    });
  }

  /** explain adds a form that asks a leaf which uplink a flow takes. */
  explain(parts, from, p) {
    const field = (name, label, more = {}) => h("label", {}, h("span", {}, label), h("input", { name, autocomplete: "off", spellcheck: "false", ...more }));
    const answer = h("div", { class: "answer", "aria-live": "polite" });
    const macs = h("datalist", { id: "far-macs" }), own = h("datalist", { id: "own-macs" });
    const form = h("form", { class: "explain", submit: (e) => { e.preventDefault(); this.ask(from, p, form, answer); } },
      h("h3", {}, "Which way does a flow go, and why?"),
      h("div", { class: "fields" },
        field("src", "from", { placeholder: "IP or MAC address", required: true, list: "own-macs" }), field("dst", "to", { placeholder: "IP or MAC address", required: true, list: "far-macs" }),
        field("proto", "protocol", { placeholder: "tcp" }), field("sport", "port", { inputmode: "numeric" }), field("dport", "to port", { inputmode: "numeric" }),
        field("dst_mac", "MAC behind the peer", { placeholder: "for IP addresses", list: "far-macs" }), field("vni", "VNI", { inputmode: "numeric" })),
      macs, own, h("p", {}, h("button", { type: "submit" }, `Ask ${from}`)));
    parts.push(form, answer);
    this.suggest(from, p, form, macs, own, answer);
  }

  /** suggest fills the form with addresses that the leaf knows on both sides of the path,
   * and asks at once. */
  async suggest(from, p, form, macs, own, answer) {
    const r = await ask("fdb", { node: from, limit: 2000 });
    if (r.error || !form.isConnected) { if (r.error) answer.replaceChildren(h("p", { class: "muted" }, r.error)); return; }
    const far = r.entries.filter((e) => e.vtep === p.vtep), near = r.entries.filter((e) => e.port);
    macs.append(...far.slice(0, 200).map((e) => h("option", { value: e.mac }, `VNI ${e.vni}`)));
    own.append(...near.slice(0, 200).map((e) => h("option", { value: e.mac }, `VNI ${e.vni}, ${e.port}`)));
    const both = far.flatMap((f) => near.filter((n) => n.vni === f.vni).slice(0, 1).map((n) => [n, f]))[0];
    if (!both) { answer.replaceChildren(h("p", { class: "muted" }, `${from} knows no addresses behind ${p.to} yet: give a flow.`)); return; }
    const e = form.elements;
    if (e.src.value || e.dst.value) return;
    e.src.value = both[0].mac;
    e.dst.value = both[1].mac;
    e.vni.value = both[0].vni;
    this.ask(from, p, form, answer);
  }

  async ask(from, p, form, answer) {
    const q = { node: from };
    for (const [k, v] of new FormData(form)) if (v.trim()) q[k] = v.trim();
    const x = await ask("explain", q);
    if (!form.isConnected) return;
    if (x.error) { answer.replaceChildren(h("p", { class: "bad" }, x.error)); return; }
    const parts = [h("p", { class: "muted" }, `scheme ${x.scheme}, hash ${x.hash.toString(16).padStart(8, "0")} of ${x.hashed}`)];
    if (x.destination === "local") parts.push(h("p", {}, `Behind port ${x.port} of ${from}: the fabric does not see it.`));
    for (const peer of x.peers) {
      if (peer.vtep !== p.vtep && x.peers.length > 1) continue;
      const taken = peer.uplinks.find((u) => u.uplink === peer.uplink);
      parts.push(h("p", { class: "reason" }, taken ? `${taken.port}: ${peer.reason}` : peer.reason), this.uplinks(peer, p));
    }
    answer.replaceChildren(...parts);
  }

  uplinks(peer, p) {
    const row = (u) => h("tr", { class: u.uplink === p.uplink ? "here" : "" },
      h("th", { scope: "row" }, u.port), h("td", { class: "n" }, String(u.local_metric)), h("td", { class: "n" }, u.remote_known ? String(u.remote_metric) : "–"),
      h("td", { class: "n" }, u.combined_metric ?? "–"), h("td", {}, u.avoided ? "avoided" : peer.uplink === u.uplink ? "takes it" : (peer.fresh || []).includes(u.uplink) ? "if it started now" : ""));
    return h("table", {}, h("caption", { class: "hidden" }, "Uplinks"),
      h("thead", {}, h("tr", {}, ...["Uplink", "Own", "Reported", "Compared", "Flow"].map((t, i) => h("th", { scope: "col", class: i > 0 && i < 4 ? "n" : null }, t)))),
      h("tbody", {}, ...peer.uplinks.map(row)));
  }
}

async function ask(what, q) {
  try {
    const r = await fetch(`api/${what}?${new URLSearchParams(q)}`);
    const x = await r.json();
    return r.ok ? x : { error: x.error || `the answer was ${r.status}` };
  } catch (e) {
    return { error: `no answer: ${e.message}` };
  }
}
