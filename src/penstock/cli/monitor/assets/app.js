// Joins the parts: looks that come, the filter, the choice, tabs and keys.

import { spark, colour } from "./chart.js";
import { Detail } from "./detail.js";
import { Flow } from "./flow.js";
import { count, mark, middle, one, rate, say, size } from "./format.js";
import { badge, Kept } from "./kept.js";
import { DRAWN, List } from "./list.js";
import { Store } from "./store.js";
import { Waits } from "./waits.js";

const TABS = ["flow", "channels", "recordings", "tables"];
const WIDE = matchMedia("(min-width: 1100px)");
const store = new Store();
const filter = one("#filter"), keys = one("#keys");
let chosen = null, paused = false, events = null, shown = 0, waiting = null;

const flow = new Flow(one("#flow"), (channel, pid) => (channel ? choose(channel) : ask(String(pid))));
const list = new List(one("#channels"), choose);
const detail = new Detail(one("#detail"), () => choose(null));
const waits = new Waits(one("#waits"));
const kept = new Kept(one("#recordings"), one("#tables"));

function choose(channel) {
  chosen = channel === chosen ? null : channel;
  draw();
  if (chosen) list.reveal(chosen);
  if (chosen && !WIDE.matches) one("#detail").focus();
}

function ask(text) {
  filter.value = filter.value === text ? "" : text;
  draw();
}

// ---- drawing ----

function draw() {
  if (!store.look) return;
  const found = store.matching(filter.value);
  if (chosen && !store.channels.has(chosen)) chosen = null;
  stats();
  flow.show(store, found, chosen);
  list.show(store, found, chosen);
  detail.show(store, chosen);
  kept.show(store);
  waits.show(store.look.why);
  const { look } = store;
  badge(one("#tab-channels"), found.length);
  badge(one("#tab-recordings"), look.archives.reduce((sum, archive) => sum + archive.total, 0));
  badge(one("#tab-tables"), look.tables.reduce((sum, folder) => sum + folder.tables.length, 0));
  const strange = look.strange.length ? ` · ${look.strange.length} file${look.strange.length === 1 ? " is no channel" : "s are no channels"}: penstock doctor names ${look.strange.length === 1 ? "it" : "them"}` : "";
  say(one("#about"), `penstock ${store.about.version} · a look every ${store.about.every} s · ${store.about.folder}${strange}`);
  trouble(look.error);
  shown = look.look;
  document.body.dataset.look = shown; // tests wait for it
}

// A channel's name in an element of small letters, which may be narrow.
function named(element, channel) {
  return middle(channel, Math.max(12, Math.floor(element.clientWidth / 6.8)));
}

function stats() {
  const { look } = store;
  const rows = look.channels;
  const worst = rows.reduce((most, row) => (row.lag > (most ? most.lag : 0) ? row : most), null);
  const losing = rows.filter((row) => store.channels.get(row.channel).losing);
  const programs = Object.keys(look.processes).length;
  say(one("#s-channels"), count(rows.length));
  say(one("#s-members"), `${count(programs)} program${programs === 1 ? "" : "s"}`);
  say(one("#s-messages"), rate(rows.reduce((sum, row) => sum + row.messages_per_s, 0)));
  say(one("#s-bytes"), size(rows.reduce((sum, row) => sum + row.bytes_per_s, 0)));
  say(one("#s-lag"), worst ? size(worst.lag) : "0 B");
  say(one("#s-lag-of"), worst ? named(one("#s-lag-of"), worst.channel) : "all up to date");
  say(one("#s-lost"), losing.length ? `${losing.length} channel${losing.length === 1 ? "" : "s"}` : "none");
  say(one("#s-lost-of"), losing.length ? losing.map((row) => named(one("#s-lost-of"), row.channel)).join(", ") : "nothing is lost");
  mark(one("#s-loss"), "loses", losing.length > 0);
  say(one("#s-free"), size(look.memory.free));
  one("#s-used").style.width = `${(100 * (1 - look.memory.free / Math.max(1, look.memory.total))).toFixed(1)}%`;
  const totals = store.totals().slice(-60);
  for (const [name, at] of [["messages", 0], ["bytes", 1]]) {
    const canvas = one(`#s-${name}-spark`);
    if (canvas.clientWidth) spark(canvas, totals.map((sample) => sample[at]), canvas.clientWidth, canvas.clientHeight, colour("accent"), 60);
  }
}

function trouble(text) {
  const place = one("#trouble");
  place.hidden = !text;
  say(place, text || "");
}

function state(name, text) {
  one("#status").dataset.state = name;
  say(one("#status span"), text);
}

// ---- looks ----

function connect() {
  events = new EventSource("events");
  events.addEventListener("past", (event) => { store.past(JSON.parse(event.data)); });
  events.addEventListener("look", (event) => {
    const look = JSON.parse(event.data);
    if (paused && store.look) {
      (waiting ||= []).push(look);
      if (waiting.length > store.about.samples) waiting.shift();
    } else if (store.add(look)) draw();
    if (!paused) state("live", "live");
  });
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) {
      state("ended", "ended");
      trouble("This monitor has ended. Run penstock monitor again and open the address that it prints.");
    } else state("lost", "connecting");
  };
}

// A tab that nobody sees holds no connection: browsers have six for a place, and it draws nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden && events) {
    events.close();
    events = null;
  } else if (!document.hidden && !events) {
    waiting = null;
    connect();
  }
});

function pause() {
  paused = !paused;
  one("#pause").setAttribute("aria-pressed", paused);
  state(paused ? "paused" : "live", paused ? "paused" : "live");
  if (!paused && waiting) {
    for (const look of waiting) store.add(look);
    waiting = null;
    draw();
  }
}

// ---- tabs and keys ----

function go(tab) {
  document.body.dataset.tab = tab;
  for (const name of TABS) {
    const button = one(`#tab-${name}`), now = name === tab;
    button.setAttribute("aria-selected", now);
    button.tabIndex = now ? 0 : -1;
  }
  draw();
}

function fit() {
  if (WIDE.matches && document.body.dataset.tab === "flow") go("channels"); // where the flow is always in sight
  else draw();
}

one(".tabs").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) go(button.dataset.goes);
});
one(".tabs").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const tabs = TABS.filter((name) => one(`#tab-${name}`).offsetWidth);
  const next = tabs[(tabs.indexOf(document.body.dataset.tab) + by + tabs.length) % tabs.length];
  go(next);
  one(`#tab-${next}`).focus();
});

function step(by) {
  const next = list.step(by);
  if (next && next !== chosen) choose(next);
}

function themed() {
  const now = window.nextTheme();
  one("#theme").title = `Theme: ${now} (t)`;
}

const ACTIONS = {
  "/": () => filter.focus(),
  ArrowDown: () => step(1),
  j: () => step(1),
  ArrowUp: () => step(-1),
  k: () => step(-1),
  Enter: () => { if (chosen) one("#detail").focus(); },
  " ": pause,
  s: () => list.nextColumn(),
  r: () => list.turn(),
  t: themed,
  "?": () => keys.showModal(),
  Escape: () => { if (chosen) choose(null); else ask(filter.value); },
};

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
  const typing = event.target === filter;
  const pressing = event.target.closest && event.target.closest("button, dialog");
  if (event.key === "Escape" && typing) {
    if (filter.value) { filter.value = ""; draw(); } else filter.blur();
    return;
  }
  if (typing && event.key === "Enter") { filter.blur(); step(1); return; }
  if (typing || (pressing && (event.key === " " || event.key === "Enter"))) return;
  if ("1234".includes(event.key)) { go(TABS[event.key - 1]); fit(); return; }
  const action = ACTIONS[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});

filter.addEventListener("input", draw);
one("#pause").addEventListener("click", pause);
one("#theme").addEventListener("click", themed);
one("#help").addEventListener("click", () => keys.showModal());
WIDE.addEventListener("change", fit);
addEventListener("themed", draw);
window.drawn = DRAWN;
go(WIDE.matches ? "channels" : "flow");
connect();
