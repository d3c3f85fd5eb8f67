// The table of channels: a row for each, made once. Rows out of sight are neither laid out nor drawn.

import { colour, spark } from "./chart.js";
import { count, duration, lost, make, mark, one, put, rate, say, size } from "./format.js";

const COLUMNS = [
  { title: "channel", order: (row) => row.channel },
  { title: "lately", hides: false },
  { title: "messages/s", cell: (row) => rate(row.messages_per_s), order: (row) => -row.messages_per_s },
  { title: "bytes/s", cell: (row) => size(row.bytes_per_s), order: (row) => -row.bytes_per_s, hides: true },
  { title: "lag", cell: (row) => size(row.lag), order: (row) => -row.lag },
  { title: "p99", cell: (row) => duration(row.latency && row.latency.p99_ns), order: (row) => -((row.latency && row.latency.p99_ns) || 0), hides: true },
  { title: "lost/s", cell: (row) => lost(row), order: (row) => -(row.lost_per_s || 0), hides: true },
  { title: "refused/s", cell: (row) => rate(row.refused_per_s), order: (row) => -row.refused_per_s, hides: true },
  { title: "writers", cell: (row) => count(row.writers), order: (row) => -row.writers, hides: true },
  { title: "readers", cell: (row) => count(row.readers), order: (row) => -row.readers, hides: true },
];
const SPARK = [92, 22];
const SHORT = 12; // letters that have room beside the numbers on a phone
export const DRAWN = { rows: 0 }; // sparklines drawn so far, for tests

export class List {
  constructor(panel, choose) {
    this.head = one(".head", panel);
    this.rows = one(".rows", panel);
    this.empty = one(".empty", panel);
    this.choose = choose;
    this.known = new Map();
    this.order = [];
    this.sort = 0;
    this.turned = false;
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        target.inSight = isIntersecting;
        if (isIntersecting) this.draw(this.known.get(target.dataset.channel));
      }
    }, { rootMargin: "120px" });
    COLUMNS.forEach((column, at) => {
      const cell = make("div", column.hides ? "wide" : "", ...(column.order ? [make("button", "", column.title)] : [column.title]));
      cell.setAttribute("role", "columnheader");
      if (column.order) {
        cell.firstChild.type = "button";
        cell.firstChild.addEventListener("click", () => this.by(at));
      }
      this.head.append(cell);
    });
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.choose(row.dataset.channel);
    });
    addEventListener("themed", () => { for (const known of this.known.values()) this.draw(known); });
  }

  by(column) {
    this.turned = column === this.sort ? !this.turned : false;
    this.sort = column;
    this.show(this.store, this.found, this.chosen);
  }

  nextColumn() {
    let next = this.sort;
    do next = (next + 1) % COLUMNS.length; while (!COLUMNS[next].order);
    this.turned = false;
    this.sort = next;
    this.show(this.store, this.found, this.chosen);
  }

  turn() {
    this.by(this.sort);
  }

  show(store, found, chosen) {
    Object.assign(this, { store, found, chosen });
    const { order } = COLUMNS[this.sort];
    const way = this.turned ? -1 : 1;
    const names = new Set(found.map(({ row }) => row.channel));
    for (const [name, old] of this.known) {
      if (!names.has(name)) {
        this.seen.unobserve(old.element);
        old.element.remove();
        this.known.delete(name);
      }
    }
    const sorted = [...found].sort((one, other) => {
      const a = order(one.row), b = order(other.row);
      return way * (a < b ? -1 : a > b ? 1 : 0) || (one.row.channel < other.row.channel ? -1 : 1);
    });
    sorted.forEach((entry, at) => {
      const known = this.known.get(entry.row.channel) || this.added(entry.row);
      known.entry = entry;
      if (this.rows.children[at] !== known.element) this.rows.insertBefore(known.element, this.rows.children[at] || null);
      this.write(known, chosen);
    });
    this.order = sorted.map(({ row }) => row.channel);
    [...this.head.children].forEach((cell, at) => {
      put(cell, "aria-sort", at !== this.sort ? "none" : this.turned ? "descending" : "ascending");
    });
    this.empty.hidden = found.length > 0;
    say(this.empty, store.channels.size ? "No channel or program matches the filter." : "No channels yet. Make one: echo hello | penstock pub log:hello");
  }

  added(row) {
    const element = make("div", "row");
    element.setAttribute("role", "row");
    element.dataset.channel = row.channel;
    const name = make("button", "name", make("i", "kind"), make("span"));
    name.type = "button";
    name.tabIndex = -1;
    name.firstChild.dataset.kind = row.kind;
    const canvas = make("canvas", "spark");
    canvas.setAttribute("aria-hidden", "true");
    const cells = COLUMNS.map((column, at) => {
      const cell = make("div", column.hides ? "wide" : "", ...(at === 0 ? [name] : at === 1 ? [canvas] : []));
      cell.setAttribute("role", "cell");
      return cell;
    });
    element.append(...cells);
    const known = { element, cells, canvas, name };
    mark(element, "long", row.channel.length > SHORT);
    this.known.set(row.channel, known);
    this.seen.observe(element);
    return known;
  }

  write(known, chosen) {
    const { row } = known.entry;
    say(known.name.lastChild, row.channel);
    put(known.name, "title", row.channel);
    COLUMNS.forEach((column, at) => { if (column.cell) say(known.cells[at], column.cell(row)); });
    const full = row.capacity > 0 && row.lag >= row.capacity / 2;
    mark(known.element, "loses", known.entry.losing);
    mark(known.element, "late", full);
    mark(known.element, "refuses", row.refused_per_s > 0);
    mark(known.element, "still", !row.messages_per_s);
    mark(known.element, "chosen", chosen === row.channel);
    put(known.element, "aria-selected", chosen === row.channel);
    if (known.element.inSight) this.draw(known);
  }

  draw(known) {
    if (!known || !known.entry) return;
    DRAWN.rows += 1;
    spark(known.canvas, known.entry.samples.slice(-60).map((sample) => sample[0]), ...SPARK, colour(known.entry.row.kind));
  }

  // The channel after or before the chosen one.
  step(by) {
    const at = this.order.indexOf(this.chosen);
    const next = at < 0 ? (by > 0 ? 0 : this.order.length - 1) : Math.min(this.order.length - 1, Math.max(0, at + by));
    return this.order[next] || null;
  }

  reveal(name) {
    const known = this.known.get(name);
    if (known) known.element.scrollIntoView({ block: "nearest" });
  }
}
