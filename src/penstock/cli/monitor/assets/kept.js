// Recordings of archives, queries that read them, and tables. Elements are made anew only when something changed.

import { ago, count, make, moment, say, size, span } from "./format.js";

const WORDS = { live: "recording", closed: "", crashed: "recorder died", damaged: "damaged" };

// A title with * is that of numbers; a phone has no room for a column with ~.
function table(titles, rows) {
  const kinds = titles.map((title) => `${title.includes("*") ? "right" : ""} ${title.includes("~") ? "minor" : ""}`.trim());
  const head = make("tr", "", ...titles.map((title, at) => make("th", kinds[at], title.replace(/[*~]/g, ""))));
  const body = rows.map(({ cells, name }) => make("tr", name, ...cells.map((text, at) => make("td", kinds[at], text))));
  return make("div", "scroll", make("table", "", make("thead", "", head), make("tbody", "", ...body)));
}

function timed(ms, now) {
  const made = make("span", "", ms === null ? "–" : ago(ms, now));
  if (ms !== null) made.title = moment(ms);
  return made;
}

function box(title, about, ...content) {
  return make("article", "", make("header", "", make("h2", "path", title), make("small", "", about)), ...content);
}

function nothing(text, command) {
  return make("p", "empty", text, " ", make("code", "", command));
}

export class Kept {
  constructor(recordings, tables) {
    this.panels = { recordings, tables };
    this.seen = {};
  }

  show({ look }) {
    this.fill("recordings", look.archives, () => look.archives.map((archive) => recordings(archive, look.time_ms)),
      ["No archive was named. Show its recordings:", "penstock monitor --archive FOLDER"]);
    this.fill("tables", [look.tables, look.archives.map((one) => one.queries)], () => [
      ...look.archives.filter((one) => one.queries.length).map((one) => queries(one, look.time_ms)),
      ...look.tables.map((folder) => tables(folder, look.time_ms)),
    ], ["No tables were named. Show those of a pipeline:", "penstock monitor --archive FOLDER --tables FOLDER"]);
  }

  // Times pass, so a panel in sight is made anew once in ten seconds, too. One with the pointer's selection is left alone.
  fill(name, data, build, words) {
    const key = JSON.stringify(data) + Math.floor(Date.now() / 10000);
    const panel = this.panels[name];
    if (this.seen[name] === key || !panel.clientWidth) return;
    const selected = getSelection();
    if (selected && !selected.isCollapsed && panel.contains(selected.anchorNode)) return;
    this.seen[name] = key;
    const made = build();
    panel.replaceChildren(...(made.length ? made : [nothing(...words)]));
  }
}

function recordings(archive, now) {
  const live = archive.recordings.filter((one) => one.state === "live").length;
  const about = `${count(archive.total)} recording${archive.total === 1 ? "" : "s"}${live ? `, ${live} live` : ""}`;
  if (archive.error) return box(archive.path, "", make("p", "wrong", archive.error));
  if (!archive.total) return box(archive.path, "", make("p", "empty", "It holds no recordings yet."));
  const newest = [...archive.recordings].reverse().sort((one, other) => (other.state === "live") - (one.state === "live"));
  const rows = newest.map((one) => ({
    name: one.state,
    cells: [
      String(one.id),
      make("span", "mono", one.channel || "?"),
      WORDS[one.state] ? make("span", `state ${one.state}`, WORDS[one.state]) : "",
      timed(one.from_ms, now),
      one.seconds ? span(one.seconds) : "–",
      count(one.messages),
      size(one.bytes),
      one.lost_bytes ? make("span", "bad", size(one.lost_bytes)) : "0",
    ],
  }));
  const shown = [table(["id*~", "channel", "", "from", "length*~", "messages*", "bytes*~", "lost*"], rows)];
  if (archive.total > rows.length) shown.push(make("p", "empty", `The newest ${rows.length} of ${count(archive.total)}.`));
  return box(archive.path, about, ...shown);
}

function queries(archive, now) {
  const rows = archive.queries.map((one) => {
    const part = one.recorded ? one.read / one.recorded : 1;
    const bar = make("span", "meter", make("i"));
    bar.firstChild.style.width = `${(part * 100).toFixed(1)}%`;
    const behind = one.recorded - one.read;
    return make("div", "query",
      make("b", "mono", one.name),
      make("small", "", behind ? `${size(behind)} to read` : "has read everything"),
      bar,
      make("small", "", `${(part * 100).toFixed(part < 1 ? 1 : 0)} % of ${size(one.recorded)}, said ${ago(one.updated_ms, now)}`));
  });
  return box(archive.path, `${rows.length} ${rows.length === 1 ? "query reads" : "queries read"} it`, ...rows);
}

function tables(folder, now) {
  if (folder.error) return box(folder.path, "", make("p", "wrong", folder.error));
  if (!folder.tables.length) return box(folder.path, "", make("p", "empty", "It holds no tables yet."));
  const rows = folder.tables.map((one) => ({
    name: one.error ? "damaged" : "",
    cells: one.error
      ? [make("span", "mono", one.name), make("span", "bad", one.error), "", "", "", ""]
      : [make("span", "mono", one.name), timed(one.committed_ms, now), String(one.version ?? "–"), count(one.rows ?? 0), size(one.bytes ?? 0), count(one.files ?? 0)],
  }));
  const about = folder.writer ? `a pipeline runs (pid ${folder.writer})` : `${rows.length} tables`;
  return box(folder.path, about, table(["table", "last commit", "version*~", "rows*", "bytes*", "files*~"], rows));
}

export function badge(button, number) {
  say(button.querySelector("em"), number ? String(number) : "");
}
