// Who waits for whom: processes as boxes, the causes to the right of those that wait, and the same as text.

import { middle, say } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 170, HEIGHT = 40, ACROSS = 150, DOWN = 22, LETTERS = 22;

function element(name, attributes, ...content) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

// Columns: a process is to the right of all that wait for it. An arrow that closes a cycle does not count.
function columns(names, arrows) {
  const onward = new Map(names.map((name) => [name, []]));
  for (const { from, to } of arrows) onward.get(from).push(to);
  const done = [], seen = new Set(), open = new Set(), closing = new Set();
  const visit = (name) => {
    seen.add(name);
    open.add(name);
    for (const next of onward.get(name)) {
      if (open.has(next)) closing.add(`${name} ${next}`);
      else if (!seen.has(next)) visit(next);
    }
    open.delete(name);
    done.unshift(name);
  };
  for (const name of names) if (!seen.has(name)) visit(name);
  const at = new Map(names.map((name) => [name, 0]));
  for (const name of done)
    for (const next of onward.get(name))
      if (!closing.has(`${name} ${next}`)) at.set(next, Math.max(at.get(next), at.get(name) + 1));
  return at;
}

export class Waits {
  constructor(panel) {
    this.panel = panel;
    this.svg = panel.querySelector("svg");
    this.text = panel.querySelector("pre");
    this.about = panel.querySelector("small");
    this.seen = "";
  }

  show(why) {
    this.panel.hidden = !why.waits;
    if (!this.panel.clientWidth) return;
    say(this.text, why.text);
    const deadlocks = why.deadlocks.length ? `, ${why.deadlocks.length} deadlock${why.deadlocks.length === 1 ? "" : "s"}` : "";
    say(this.about, `${why.waits}${deadlocks}`);
    const key = JSON.stringify([why.processes, why.arrows.map(({ from, to, channel }) => [from, to, channel]), why.deadlocks]);
    if (key === this.seen) return;
    this.seen = key;
    this.draw(why);
  }

  draw(why) {
    const known = new Map(why.processes.map((one) => [one.pid, one]));
    const names = [...new Set([...why.arrows.flatMap(({ from, to }) => [from, to]), ...known.keys()])];
    const at = columns(names, why.arrows);
    const stuck = new Set(why.deadlocks.flat());
    const used = [], places = new Map();
    for (const name of names) {
      const column = at.get(name), row = (used[column] = (used[column] ?? -1) + 1);
      places.set(name, { x: 10 + column * (WIDTH + ACROSS), y: 10 + row * (HEIGHT + DOWN) });
    }
    const drawn = why.arrows.map((arrow) => this.arrow(places.get(arrow.from), places.get(arrow.to), arrow,
      stuck.has(arrow.from) && stuck.has(arrow.to)));
    const boxes = names.map((name) => this.box(places.get(name), known.get(name) ?? { name: String(name), state: "peer", text: "on the network" },
      stuck.has(name)));
    const wide = Math.max(0, ...[...places.values()].map(({ x }) => x + WIDTH + 10));
    const high = Math.max(0, ...[...places.values()].map(({ y }) => y + HEIGHT + 30));
    this.svg.setAttribute("viewBox", `0 0 ${Math.max(wide, 1)} ${Math.max(high, 1)}`);
    this.svg.setAttribute("width", wide);
    this.svg.setAttribute("height", high);
    this.svg.replaceChildren(...drawn, ...boxes);
  }

  arrow(from, to, arrow, stuck) {
    const back = to.x <= from.x, apart = from === to ? WIDTH / 4 : 0;
    const start = { x: from.x + (back ? WIDTH / 2 + apart : WIDTH), y: from.y + (back ? HEIGHT : HEIGHT / 2) };
    const end = { x: to.x + (back ? WIDTH / 2 - apart : 0), y: to.y + (back ? HEIGHT : HEIGHT / 2) };
    const bend = back ? `C ${start.x} ${start.y + 26} ${end.x} ${end.y + 26} ${end.x} ${end.y}`
      : `C ${start.x + 50} ${start.y} ${end.x - 50} ${end.y} ${end.x} ${end.y}`;
    const label = element("text", { x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 + (back ? 24 : -4), "text-anchor": "middle" },
      middle(arrow.channel, LETTERS));
    const title = element("title", {}, `waits for ${arrow.what} of ${arrow.channel}, ${arrow.seconds.toFixed(1)} s: ${arrow.part}`);
    const head = back ? `M ${end.x - 4} ${end.y + 8} L ${end.x} ${end.y} L ${end.x + 4} ${end.y + 8}`
      : `M ${end.x - 8} ${end.y - 4} L ${end.x} ${end.y} L ${end.x - 8} ${end.y + 4}`;
    return element("g", { class: stuck ? "arrow stuck" : "arrow" }, title,
      element("path", { d: `M ${start.x} ${start.y} ${bend}` }), element("path", { d: head }), label);
  }

  box({ x, y }, process, stuck) {
    return element("g", { class: `process ${process.state}${stuck ? " stuck" : ""}`, transform: `translate(${x} ${y})` },
      element("rect", { width: WIDTH, height: HEIGHT, rx: 6 }),
      element("text", { x: 10, y: 17 }, middle(process.name, LETTERS)),
      element("text", { x: 10, y: 32, class: "state" }, middle(process.text, LETTERS + 4)));
  }
}
