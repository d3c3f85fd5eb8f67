// The page's one copy of the data: channels with their history, as looks bring it. Draws nothing.

const RECENT = 10; // looks for which a channel counts as losing after a loss: bursts would flicker
const FIRST = 60; // samples that a chart has room for at first

export class Store {
  constructor() {
    this.channels = new Map(); // by name: {row, samples, losing}, samples: [messages, bytes, lag, lost, p99], the newest last
    this.look = null;
    this.times = [];
    this.about = { version: "", every: 1, samples: 240, folder: "" };
  }

  // All that came before this page was opened, or before it was connected again.
  past(past) {
    this.about = past;
    this.times = past.times_ms.slice(0, -1); // the newest look comes as a look
    this.channels = new Map();
    for (const [name, samples] of Object.entries(past.history)) {
      this.channels.set(name, { row: null, samples: samples.slice(0, -1) });
    }
    this.look = null;
  }

  // A look. False for one that is here already.
  add(look) {
    if (this.look && look.look <= this.look.look) return false;
    const before = this.channels;
    this.channels = new Map();
    for (const row of look.channels) {
      const known = before.get(row.channel);
      const same = known && (!known.row || known.row.created_ns === row.created_ns);
      const samples = same ? known.samples : [];
      if (same) samples.push([row.messages_per_s, row.bytes_per_s, row.lag, row.lost_per_s || 0, row.latency && row.latency.p99_ns]);
      if (samples.length > this.about.samples) samples.shift();
      this.channels.set(row.channel, { row, samples, losing: samples.slice(-RECENT).some((sample) => sample[3] > 0) });
    }
    this.times.push(look.time_ms);
    if (this.times.length > this.about.samples) this.times.shift();
    this.look = look;
    return true;
  }

  // How many samples a chart has room for: as many as there are, in steps, so that a new page is not a blank one.
  slots() {
    return Math.min(this.about.samples, Math.max(FIRST, Math.ceil(this.times.length / FIRST) * FIRST));
  }

  program(pid) {
    return this.look.processes[pid] || { name: "", command: "" };
  }

  // Sums over all channels at each time: messages, bytes, the largest lag, channels that lost something.
  totals() {
    const length = Math.max(0, this.times.length - 1);
    const made = Array.from({ length }, () => [0, 0, 0, 0]);
    for (const { samples } of this.channels.values()) {
      const shift = length - samples.length;
      for (let at = Math.max(0, -shift); at < samples.length; at++) {
        const [messages, bytes, lag, lost] = samples[at], sum = made[shift + at];
        sum[0] += messages;
        sum[1] += bytes;
        if (lag > sum[2]) sum[2] = lag;
        if (lost > 0) sum[3] += 1;
      }
    }
    return made;
  }

  // The channels that a text is part of: of their names, or of the names and numbers of their programs.
  matching(text) {
    const wanted = text.trim().toLowerCase();
    const all = [...this.channels.values()];
    if (!wanted) return all;
    return all.filter(({ row }) => row.channel.toLowerCase().includes(wanted) || row.members.some((member) => {
      const program = this.program(member.pid);
      return String(member.pid) === wanted || `${program.name} ${program.command} ${member.name || ""}`.toLowerCase().includes(wanted);
    }));
  }
}
