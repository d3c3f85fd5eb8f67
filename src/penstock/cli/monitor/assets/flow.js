// Who is connected to whom: programs and channels as a graph. Elements are kept from look to look; only what changed is written.

import { layout, HEIGHT } from "./layout.js";
import { make, mark, one, put, rate, say, shortened, size } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST = 60; // channels that are drawn unless all are asked for
const BEND = 16, BELOW = 5; // of an edge that leads back: how far it reaches beside and below the boxes
const MOVING = 160; // edges that move at most: more would cost a laptop its battery
const NARROW = 560;
const LETTER = [7.6, 7], BESIDE = 24; // pixels: a letter of a wide and of a narrow page, and what is beside a name

export class Flow {
  constructor(panel, choose) {
    this.panel = panel;
    this.choose = choose;
    this.canvas = one(".canvas", panel);
    this.board = one(".board", panel);
    this.svg = one("svg", panel);
    this.group = one("g", panel);
    this.about = one("#flow-about");
    this.button = one("#flow-all");
    this.all = false;
    this.nodes = new Map(); // id -> {column, y, element, ...}
    this.edges = new Map(); // key -> {from, to, base, dots, ...}
    this.key = "";
    this.chosen = null;
    this.button.addEventListener("click", () => { this.all = !this.all; this.redraw(); });
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    this.board.addEventListener("keydown", (event) => this.walk(event));
    this.board.addEventListener("click", (event) => {
      const node = event.target.closest(".node");
      if (node) this.press(this.nodes.get(node.dataset.id));
    });
  }

  press(node) {
    if (node.channel) this.choose(node.channel);
    else this.choose(null, node.pid);
  }

  redraw() {
    if (this.store) this.show(this.store, this.found, this.chosen);
  }

  // found: the channels of the store that the filter lets through.
  show(store, found, chosen) {
    Object.assign(this, { store, found, chosen });
    if (!this.canvas.clientWidth) return; // on another tab
    const open = found.filter(({ row }) => row.members.length);
    open.sort((one, other) => weight(other.row) - weight(one.row) || (one.row.channel < other.row.channel ? -1 : 1));
    const shown = this.all ? open : open.slice(0, MOST);
    if (chosen && !shown.some(({ row }) => row.channel === chosen)) {
      const extra = open.find(({ row }) => row.channel === chosen);
      if (extra) shown.push(extra);
    }
    this.tell(found, open, shown);
    const narrow = this.room() < NARROW;
    const graph = this.graph(shown, narrow);
    const key = `${narrow} ${this.room()} ${[...graph.nodes.keys()].sort().join(" ")} ${[...graph.edges.keys()].sort().join(" ")}`;
    if (key !== this.key) {
      this.key = key;
      this.arrange(graph, narrow);
    }
    for (const [id, node] of graph.nodes) this.write(this.nodes.get(id), node);
    for (const [id, edge] of graph.edges) this.draw(this.edges.get(id), edge, graph.edges.size <= MOVING);
  }

  // Pixels from side to side, without the padding.
  room() {
    const style = getComputedStyle(this.canvas);
    return this.canvas.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  }

  tell(found, open, shown) {
    const idle = found.length - open.length;
    const words = [];
    if (shown.length < open.length) words.push(`${shown.length} of ${open.length} channels`);
    if (idle) words.push(`${idle} that no process has open ${idle === 1 ? "is" : "are"} left out`);
    say(this.about, open.length ? words.join(" · ") : "no process has a channel open");
    this.button.hidden = open.length <= MOST;
    say(this.button, this.all ? `Show ${MOST}` : "Show all");
  }

  // Nodes and edges of these channels. On a narrow page a program that writes and reads stands on both sides.
  graph(shown, narrow) {
    const nodes = new Map(), edges = new Map();
    const program = (pid, side) => {
      const id = narrow ? `p${pid}${side}` : `p${pid}`;
      if (!nodes.has(id)) nodes.set(id, { id, pid, first: 0 });
      return id;
    };
    const connect = (from, to, part) => {
      const key = `${from}>${to}`;
      const edge = edges.get(key) || { from, to, rate: 0, lag: 0, dropped: false, both: false, handles: 0, ...part };
      edge.rate += part.rate;
      edge.lag = Math.max(edge.lag, part.lag);
      edge.dropped ||= part.dropped;
      edge.both ||= part.both;
      edge.handles += 1;
      edges.set(key, edge);
    };
    for (const { row, losing } of [...shown].sort((one, other) => (one.row.channel < other.row.channel ? -1 : 1))) {
      const channel = `c${row.channel}`;
      nodes.set(channel, { id: channel, channel: row.channel, row, losing, first: narrow || row.writers ? 1 : 0 });
      for (const member of row.members) {
        const part = { rate: member.messages_per_s, lag: member.lag || 0, dropped: member.dropped, row };
        if (member.writes) connect(program(member.pid, "w"), channel, { ...part, rate: member.reads ? row.messages_per_s : part.rate, both: member.reads });
        else connect(channel, program(member.pid, "r"), part);
      }
    }
    return { nodes, edges };
  }

  arrange(graph, narrow) {
    const placed = layout(graph.nodes, [...graph.edges.values()]);
    const room = this.room();
    const gap = narrow ? 22 : 46;
    const least = narrow ? [Math.min(92, (room - 2 * gap) * 0.28), Math.min(138, (room - 2 * gap) * 0.42)] : [150, 190];
    const wanted = (narrow ? 3 : placed.columns) * least[0] + (placed.columns >> 1) * (least[1] - least[0]) + (placed.columns - 1) * gap;
    const spare = Math.max(0, room - wanted);
    const wide = Math.min(1.5, 1 + spare / wanted / 2);
    const width = (node) => Math.floor((node.channel ? least[1] : least[0]) * (narrow ? Math.min(1.15, 1 + spare / wanted) : wide));
    const widths = [];
    for (const node of graph.nodes.values()) widths[node.column] = Math.max(widths[node.column] || 0, width(node));
    const sum = widths.reduce((total, one) => total + (one || 0), 0);
    const between = Math.max(gap, Math.min(170, (room - sum) / Math.max(1, placed.columns - 1)));
    const lefts = [];
    widths.reduce((left, one, at) => { lefts[at] = left; return left + (one || 0) + between; }, 0);
    const full = sum + between * (placed.columns - 1);
    const inset = Math.max(0, (room - full) / 2);
    const focused = document.activeElement && document.activeElement.dataset.id;
    for (const [id, old] of this.nodes) if (!graph.nodes.has(id)) { old.element.remove(); this.nodes.delete(id); }
    for (const [id, node] of graph.nodes) {
      const known = this.nodes.get(id) || { element: this.node(node) };
      Object.assign(known, node, { left: inset + lefts[node.column], width: width(node) });
      known.left += (widths[node.column] - known.width) / 2;
      this.nodes.set(id, known);
      known.element.style.transform = `translate(${Math.round(known.left)}px, ${known.y}px)`;
      known.element.style.width = `${known.width}px`;
    }
    for (const [id, old] of this.edges) if (!graph.edges.has(id)) { old.base.remove(); old.dots.remove(); this.edges.delete(id); }
    for (const [id, edge] of graph.edges) {
      const known = this.edges.get(id) || this.edge();
      const path = curve(this.nodes.get(edge.from), this.nodes.get(edge.to));
      known.base.setAttribute("d", path);
      known.dots.setAttribute("d", path);
      this.edges.set(id, known);
    }
    const channels = [...graph.nodes.values()].filter((node) => node.channel);
    const letters = Math.max(8, Math.floor((Math.min(...channels.map(width)) - BESIDE) / LETTER[narrow ? 1 : 0]));
    this.names = shortened(channels.map((node) => node.channel), letters);
    const height = placed.height + 2 * BELOW;
    this.board.style.height = `${height}px`;
    this.board.style.width = `${Math.max(room, full)}px`;
    this.svg.style.height = `${height}px`;
    this.svg.style.width = `${Math.max(room, full)}px`;
    if (focused && this.nodes.has(focused)) this.nodes.get(focused).element.focus({ preventScroll: true });
    this.rove();
  }

  node(node) {
    const element = make("button", `node ${node.channel ? "channel" : "program"}`, make("b", "", make("bdi")), make("small"));
    element.type = "button";
    element.tabIndex = -1;
    element.dataset.id = node.id;
    if (node.channel) element.dataset.kind = node.row.kind;
    this.board.append(element);
    return element;
  }

  edge() {
    const base = document.createElementNS(SVG, "path"), dots = document.createElementNS(SVG, "path");
    base.setAttribute("class", "edge");
    dots.setAttribute("class", "dots");
    this.group.append(base, dots);
    return { base, dots };
  }

  write(known, node) {
    const { element } = known;
    const [title, small] = element.children;
    if (node.channel) {
      const row = node.row;
      say(title.firstChild, this.names.get(row.channel) || row.channel);
      const loses = node.losing;
      say(small, loses ? `${rate(row.messages_per_s)}/s · loses` : `${rate(row.messages_per_s)}/s${known.width > 175 ? ` · ${size(row.bytes_per_s)}/s` : ""}`);
      mark(element, "loses", loses);
      mark(element, "still", !row.messages_per_s);
      put(element, "title", `${row.channel}\n${rate(row.messages_per_s)} messages/s, lag ${size(row.lag)}`);
      mark(element, "chosen", this.chosen === row.channel);
      put(element, "aria-pressed", this.chosen === row.channel);
    } else {
      const program = this.store.program(node.pid);
      say(title.firstChild, program.name || `process ${node.pid}`);
      say(small, `pid ${node.pid}`);
      put(element, "title", program.command || `process ${node.pid}`);
    }
  }

  draw(known, edge, moving) {
    const { base, dots } = known;
    const late = edge.lag > 0 && edge.row.capacity > 0 && edge.lag >= edge.row.capacity / 2;
    const state = edge.dropped ? "dropped" : late ? "late" : edge.rate > 0 ? "busy" : "idle";
    const near = this.chosen && edge.row.channel === this.chosen ? " near" : this.chosen ? " far" : "";
    put(base, "class", `edge ${state}${near}`);
    put(base, "data-kind", edge.row.kind);
    put(base, "stroke-width", edge.rate > 0 ? (1.2 + Math.min(2.2, Math.log10(edge.rate + 1) * 0.5)).toFixed(1) : 1.2);
    const speed = edge.rate >= 1000 ? 3 : edge.rate >= 30 ? 2 : 1;
    const runs = moving && edge.rate > 0 && !edge.both;
    put(dots, "class", runs ? `dots ${state} speed${speed}${near}` : "dots off");
    put(dots, "data-kind", edge.row.kind);
  }

  // One node is in the tab order; arrows go to the nearest one in their direction.
  rove() {
    const all = [...this.nodes.values()];
    if (!all.length) return;
    const now = all.find(({ element }) => element === document.activeElement) || all.find(({ channel }) => channel && channel === this.chosen) || all[0];
    for (const { element } of all) element.tabIndex = element === now.element ? 0 : -1;
  }

  walk(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const here = way && this.nodes.get(event.target.dataset.id);
    if (!here) return;
    event.preventDefault();
    event.stopPropagation();
    const [right, down] = way;
    let best = null, least = Infinity;
    for (const node of this.nodes.values()) {
      if (node === here || (right ? (node.column - here.column) * right <= 0 : node.column !== here.column || (node.y - here.y) * down <= 0)) continue;
      const far = Math.abs(node.column - here.column) * 1000 + Math.abs(node.y - here.y);
      if (far < least) [best, least] = [node, far];
    }
    if (best) {
      best.element.focus();
      this.rove();
    }
  }
}

// Channels that many use and that carried much come first. It changes rarely, so the graph does not jump.
function weight(row) {
  return row.members.length * 10 + Math.floor(Math.log10(row.messages_sent + 1));
}

function curve(from, to) {
  const x1 = from.left + from.width, y1 = from.y + HEIGHT / 2, x2 = to.left, y2 = to.y + HEIGHT / 2;
  if (x2 <= x1) { // back to a column on the left: below both boxes
    const low = Math.max(from.y, to.y) + HEIGHT + BELOW, right = (x1 + BEND).toFixed(1), left = (x2 - BEND).toFixed(1);
    return `M${x1.toFixed(1)} ${y1}C${right} ${y1} ${right} ${low} ${x1.toFixed(1)} ${low}L${x2.toFixed(1)} ${low}` +
      `C${left} ${low} ${left} ${y2} ${x2.toFixed(1)} ${y2}`;
  }
  const pull = Math.max(18, (x2 - x1) / 2);
  return `M${x1.toFixed(1)} ${y1}C${(x1 + pull).toFixed(1)} ${y1} ${(x2 - pull).toFixed(1)} ${y2} ${x2.toFixed(1)} ${y2}`;
}
