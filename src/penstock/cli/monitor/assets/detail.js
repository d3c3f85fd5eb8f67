// One channel in full, or all of them together: charts over time, facts, members.

import { Charts } from "./chart.js";
import { ago, count, duration, make, mark, put, rate, say, size } from "./format.js";

const PEERS_MAX = 16; // that the panel lists

export class Detail {
  constructor(panel, close) {
    this.panel = panel;
    this.title = make("h2");
    const button = make("button", "close", "×");
    button.type = "button";
    button.title = "Close (Esc)";
    button.setAttribute("aria-label", "Close");
    button.addEventListener("click", close);
    this.facts = make("dl", "facts");
    this.body = make("div", "charts");
    this.members = make("div", "members");
    panel.append(make("header", "", make("i", "kind"), this.title, button), this.facts, this.body, this.members);
    this.kind = panel.querySelector("header .kind");
    this.charts = new Charts(this.body);
    this.rows = [];
  }

  show(store, chosen) {
    const entry = chosen && store.channels.get(chosen);
    mark(document.body, "detailed", Boolean(entry));
    if (entry) this.channel(store, entry);
    else this.all(store);
  }

  all(store) {
    say(this.title, "All channels");
    put(this.kind, "data-kind", "accent");
    const totals = store.totals();
    this.charts.show([
      { title: "messages/s", kind: "accent", values: totals.map((at) => at[0]), text: rate },
      { title: "bytes/s", kind: "accent", values: totals.map((at) => at[1]), text: size },
      { title: "largest lag", kind: "late", values: totals.map((at) => at[2]), text: size },
      { title: "channels that lose messages", kind: "bad", values: totals.map((at) => at[3]), text: count },
    ], store.times, store.slots());
    const codecs = new Set([...store.channels.values()].map(({ row }) => row.codec || "(open)"));
    const memory = [...store.channels.values()].reduce((sum, { row }) => sum + row.size, 0);
    this.tell([["folder", store.about.folder], ["memory of channels", size(memory)], ["codecs", [...codecs].sort().join(", ") || "–"]]);
    this.list([]);
  }

  channel(store, { row, samples }) {
    say(this.title, row.channel);
    put(this.kind, "data-kind", row.kind);
    const lossTitle = row.lost_unit === "bytes" ? "lost bytes/s" : "lost messages/s";
    const charts = [
      { title: "messages/s", kind: row.kind, values: samples.map((at) => at[0]), text: rate },
      { title: "bytes/s", kind: row.kind, values: samples.map((at) => at[1]), text: size },
      { title: "lag of the slowest reader", kind: "late", values: samples.map((at) => at[2]), text: size },
    ];
    if (row.latency) {
      charts.push({ title: "latency, p99", kind: "late", values: samples.map((at) => at[4] || 0), text: (ns) => (ns ? duration(ns) : "–") });
    }
    if (row.lost_per_s !== null) {
      charts.push({ title: lossTitle, kind: "bad", values: samples.map((at) => at[3]), text: row.lost_unit === "bytes" ? size : rate });
    }
    this.charts.show(charts, store.times, store.slots());
    const total = row.lost === null ? "not counted" : row.lost_unit === "bytes" ? size(row.lost) : count(row.lost);
    this.tell([
      ["codec", row.codec || "(open)"],
      ["made", ago(row.created_ns / 1e6, store.look.time_ms)],
      ["sent", `${count(row.messages_sent)} · ${size(row.bytes_sent)}`],
      ["lost in all", total],
      ["found no room", `${rate(row.refused_per_s)}/s`],
      ...(row.latency ? [["latency lately", row.latency.measured ? `p50 ${duration(row.latency.p50_ns)} · p99 ${duration(row.latency.p99_ns)}` : "–"]] : []),
      ["memory", `${size(row.size)}, room ${size(row.capacity)}`],
      ...(row.network ? this.network(row.network) : []),
    ]);
    this.list(row.members.map((member) => ({ member, program: store.program(member.pid), capacity: row.capacity })));
  }

  network({ counts, sessions, receivers }) {
    const lost = `${count(counts.naks_sent + counts.naks_received)} NAKs · ${count(counts.retransmitted)} sent again · ${count(counts.losses)} given up`;
    const refused = counts.malformed + counts.rejected + counts.unauthenticated + counts.replayed;
    return [
      ["network", lost],
      ["refused", `${count(refused)} datagrams · ${count(counts.sessions_refused)} sessions`],
      ["sessions ended", `${count(counts.sessions_closed)} closed · ${count(counts.sessions_lost)} lost`],
      ...[...sessions, ...receivers].slice(0, PEERS_MAX).map(({ source, text }) => [source ? "session" : "receiver", text]),
    ];
  }

  tell(facts) {
    while (this.facts.children.length > facts.length) this.facts.lastChild.remove();
    while (this.facts.children.length < facts.length) this.facts.append(make("div", "", make("dt"), make("dd")));
    facts.forEach(([name, value], at) => {
      const [title, text] = this.facts.children[at].children;
      say(title, name);
      say(text, value);
    });
  }

  list(members) {
    while (this.rows.length > members.length) this.rows.pop().remove();
    while (this.rows.length < members.length) {
      const row = make("div", "member", make("i", "role"), make("div", "", make("b"), make("small")), make("div", "right", make("b"), make("small")));
      this.rows.push(row);
      this.members.append(row);
    }
    members.forEach(({ member, program, capacity }, at) => {
      const row = this.rows[at], [role, left, right] = row.children;
      say(role, member.reads && member.writes ? "⇄" : member.writes ? "→" : "←");
      put(role, "title", member.role);
      say(left.firstChild, member.name || program.name || `process ${member.pid}`);
      say(left.lastChild, `${member.role}${member.dropped ? ", dropped" : ""} · pid ${member.pid}`);
      put(left, "title", program.command);
      say(right.firstChild, `${rate(member.messages_per_s)}/s`);
      say(right.lastChild, member.lag === null ? `${size(member.bytes_per_s)}/s` : `lag ${size(member.lag)}`);
      put(right, "title", member.latency && member.latency.measured ? `latency: p50 ${duration(member.latency.p50_ns)}, p99 ${duration(member.latency.p99_ns)}` : "");
      mark(row, "late", member.dropped || (capacity > 0 && member.lag >= capacity / 2));
    });
  }
}
