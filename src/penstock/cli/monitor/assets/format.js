// Numbers and times as people read them, and small helpers for the page's elements. Knows no channel.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value) {
  if (value >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
  if (value >= 1e7) return `${(value / 1e6).toFixed(1)} M`;
  return whole.format(value);
}

export function rate(value) {
  return value > 0 && value < 9.95 ? value.toFixed(1) : count(value);
}

export function size(value) {
  if (value === null || value === undefined) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(value) < 999.95) return unit === "B" ? `${Math.round(value)} B` : `${value.toFixed(value < 100 ? 1 : 0)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} TB`;
}

export function duration(ns) {
  if (ns === null || ns === undefined) return "–";
  let value = ns;
  for (const unit of ["ns", "µs", "ms"]) {
    if (value < 999.5) return `${value < 9.95 && unit !== "ns" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} s`;
}

export function lost(row) {
  if (row.lost_per_s === null) return "–";
  return row.lost_unit === "bytes" ? size(row.lost_per_s) : rate(row.lost_per_s);
}

export function span(seconds) {
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const units = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];
  for (const [big, length, small, part] of units) {
    if (seconds >= length) {
      const rest = Math.floor((seconds % length) / part);
      return rest ? `${Math.floor(seconds / length)} ${big} ${rest} ${small}` : `${Math.floor(seconds / length)} ${big}`;
    }
  }
}

export function ago(ms, now) {
  const seconds = Math.max(0, (now - ms) / 1000);
  if (seconds < 2) return "now";
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(ms).toISOString().slice(0, 10);
}

export function moment(ms) {
  return new Date(ms).toLocaleString("sv-SE").replace("T", " ");
}

// A text of at most so many letters, without its middle. The kind of a channel stays.
export function middle(text, letters) {
  if (text.length <= letters) return text;
  const head = Math.min(Math.max(text.indexOf(":") + 1, Math.floor(((letters - 1) * 2) / 5)), letters - 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (letters - 1 - head))}`;
}

// Each name as a text of at most so many letters: name → text. Names that would look the same are shown from where they differ, or numbered.
export function shortened(names, letters) {
  const alike = new Map(), found = new Map();
  for (const name of names) alike.set(middle(name, letters), [...(alike.get(middle(name, letters)) || []), name]);
  const taken = new Set([...alike].filter(([, group]) => group.length === 1).map(([text]) => text));
  for (const [text, group] of alike) {
    if (group.length === 1) { found.set(group[0], text); continue; }
    const sorted = [...group].sort(), last = sorted[sorted.length - 1];
    let same = 0;
    while (sorted[0][same] === last[same] && same < last.length - 1) same += 1;
    for (const name of sorted) {
      const rest = `…${name.slice(same)}`;
      let shown = rest.length > letters ? `${rest.slice(0, letters - 1)}…` : rest;
      for (let number = 1; taken.has(shown); number += 1) shown = `${text.slice(0, letters - 5)}…~${number}`;
      taken.add(shown);
      found.set(name, shown);
    }
  }
  return found;
}

// A nice number from `value` up, so that a chart's upper end does not move with each look.
export function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.999) * power;
}

export const one = (selector, from = document) => from.querySelector(selector);

// An element with classes, text and children. Text is text: nothing here is ever parsed as HTML.
export function make(tag, name = "", ...content) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...content);
  return made;
}

// Sets a text only if it is another one: the browser then has nothing to lay out.
export function say(element, text) {
  if (element.said !== text) {
    element.said = text;
    element.textContent = text;
  }
}

export function mark(element, name, is) {
  if (element.classList.contains(name) !== is) element.classList.toggle(name, is);
}

export function put(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}
