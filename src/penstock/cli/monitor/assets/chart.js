// Lines on canvases: sparklines, and charts with a cross-hair that several charts share. Colours come from the style sheet.

import { ceiling, make, one, put, say } from "./format.js";

let colours = new Map();
addEventListener("themed", () => { colours = new Map(); });

// A kind's colour, or that of a name such as "accent", as the browser computes it.
export function colour(name) {
  if (!colours.has(name)) {
    const probe = make("i", "probe");
    probe.dataset.kind = name;
    document.body.append(probe);
    colours.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(name);
}

function prepared(canvas, width, height) {
  const scale = Math.min(devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// A line through values from the left to the right, and the area below it.
function line(pen, values, width, height, top, slots, paint) {
  const step = width / Math.max(1, slots - 1);
  const left = width - (values.length - 1) * step;
  const y = (value) => height - 1 - (value / top) * (height - 3);
  pen.beginPath();
  values.forEach((value, at) => pen.lineTo(left + at * step, y(value)));
  pen.strokeStyle = paint;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.stroke();
  pen.lineTo(width, height);
  pen.lineTo(left, height);
  pen.closePath();
  pen.globalAlpha = 0.13;
  pen.fillStyle = paint;
  pen.fill();
  pen.globalAlpha = 1;
}

export function spark(canvas, values, width, height, paint, slots = 60) {
  const pen = prepared(canvas, width, height);
  const shown = values.slice(-slots);
  const top = Math.max(...shown, 0);
  if (shown.length > 1 && top > 0) line(pen, shown, width, height, top, slots, paint);
}

// Charts of one panel. Pointing at one shows the same moment in all.
export class Charts {
  constructor(place) {
    this.place = place;
    this.charts = [];
    this.at = null;
    this.times = [];
    new ResizeObserver(() => this.draw()).observe(place);
    addEventListener("themed", () => this.draw());
  }

  // rows: {title, values, text, kind}. slots: how many values fit from left to right.
  show(rows, times, slots) {
    this.times = times;
    this.slots = slots;
    this.rows = rows;
    while (this.charts.length < rows.length) this.charts.push(this.added());
    this.charts.forEach((chart, at) => { chart.figure.hidden = at >= rows.length; });
    this.draw();
  }

  added() {
    const figure = make("figure", "chart");
    const caption = make("figcaption", "", make("span"), make("b"));
    const canvas = make("canvas");
    canvas.setAttribute("role", "img");
    const top = make("small", "top"), when = make("small", "when");
    figure.append(caption, make("div", "plot", canvas, top, when));
    this.place.append(figure);
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      const step = box.width / Math.max(1, this.slots - 1);
      this.at = Math.round((box.right - event.clientX) / step); // counted from the newest back
      this.draw();
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    return { figure, caption, canvas, top, when };
  }

  draw() {
    (this.rows || []).forEach((row, number) => {
      const { caption, canvas, top, when, figure } = this.charts[number];
      const width = canvas.clientWidth, height = canvas.clientHeight;
      say(one("span", caption), row.title);
      put(figure, "data-kind", row.kind);
      const values = row.values;
      const back = this.at === null ? 0 : Math.min(Math.max(0, this.at), values.length - 1);
      const shown = values.length ? values[values.length - 1 - back] : 0;
      say(one("b", caption), row.text(shown));
      const then = this.times[this.times.length - 1 - back];
      say(when, this.at === null || !then ? "" : new Date(then).toLocaleTimeString("sv-SE"));
      put(canvas, "aria-label", `${row.title}: ${row.text(values.length ? values[values.length - 1] : 0)} now`);
      if (!width) return;
      const highest = ceiling(Math.max(...values, 0));
      say(top, values.some((value) => value > 0) ? row.text(highest) : "");
      const pen = prepared(canvas, width, height);
      pen.strokeStyle = colour("rule");
      pen.lineWidth = 1;
      for (const part of [0, 0.5, 1]) {
        const y = Math.round(height - 1 - part * (height - 3)) + 0.5;
        pen.beginPath();
        pen.moveTo(0, y);
        pen.lineTo(width, y);
        pen.stroke();
      }
      if (values.length > 1) line(pen, values, width, height, highest, this.slots, colour(row.kind));
      if (this.at !== null && values.length) {
        const x = width - (back * width) / Math.max(1, this.slots - 1);
        pen.strokeStyle = colour("muted");
        pen.beginPath();
        pen.moveTo(x, 0);
        pen.lineTo(x, height);
        pen.stroke();
        pen.fillStyle = colour(row.kind);
        pen.beginPath();
        pen.arc(x, height - 1 - (shown / highest) * (height - 3), 3, 0, 7);
        pen.fill();
      }
    });
  }
}
