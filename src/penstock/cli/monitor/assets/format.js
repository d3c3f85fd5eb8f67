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
