// Where nodes of a graph of data flow stand: in columns from left to right, each part of the graph below the other. Plain numbers.
// After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures" (1981), without its dummy nodes.

export const HEIGHT = 42, GAP = 10, SWEEPS = 6;

// nodes: id -> {}; edges: [{from, to}] with ids. Gives each node `column` and `y`. The value: {columns, height}.
export function layout(nodes, edges) {
  const near = new Map([...nodes.keys()].map((id) => [id, { before: [], after: [] }]));
  for (const { from, to } of edges) {
    near.get(from).after.push(to);
    near.get(to).before.push(from);
  }
  columns(nodes, near);
  let below = 0, most = 0;
  for (const part of parts(nodes, near)) {
    const height = stack(part, nodes, near, below);
    below += height + GAP * 2;
    most = Math.max(most, ...part.map((id) => nodes.get(id).column));
  }
  return { columns: most + 1, height: Math.max(HEIGHT, below - GAP * 2) };
}

// Longest paths from the sources. An edge that closes a circle is left out.
function columns(nodes, near) {
  const state = new Map(), order = [];
  const kept = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const start of nodes.keys()) {
    if (state.has(start)) continue;
    const open = [[start, 0]];
    state.set(start, "open");
    while (open.length) {
      const top = open[open.length - 1];
      const [id, next] = top;
      const after = near.get(id).after;
      if (next === after.length) {
        state.set(id, "done");
        order.push(id);
        open.pop();
        continue;
      }
      top[1] += 1;
      const other = after[next];
      if (state.get(other) === "open") continue; // a circle
      kept.get(id).push(other);
      if (!state.has(other)) {
        state.set(other, "open");
        open.push([other, 0]);
      }
    }
  }
  for (const id of nodes.keys()) nodes.get(id).column = nodes.get(id).first || 0;
  for (const id of order.reverse()) {
    for (const other of kept.get(id)) {
      nodes.get(other).column = Math.max(nodes.get(other).column, nodes.get(id).column + 1);
    }
  }
  for (const id of order.reverse()) { // a source stands beside its nearest reader
    if (near.get(id).before.length === 0 && kept.get(id).length) {
      const nearest = Math.min(...kept.get(id).map((other) => nodes.get(other).column));
      nodes.get(id).column = Math.max(nodes.get(id).column, nearest - 1);
    }
  }
}

// The connected parts, the largest first.
function parts(nodes, near) {
  const seen = new Set(), found = [];
  for (const start of nodes.keys()) {
    if (seen.has(start)) continue;
    const part = [start];
    seen.add(start);
    for (const id of part) {
      for (const other of [...near.get(id).before, ...near.get(id).after]) {
        if (!seen.has(other)) {
          seen.add(other);
          part.push(other);
        }
      }
    }
    found.push(part);
  }
  return found.sort((one, other) => other.length - one.length);
}

// Orders each column so that few edges cross, and gives heights. The value: how high the part is.
function stack(part, nodes, near, from) {
  const byColumn = [];
  for (const id of part) (byColumn[nodes.get(id).column] ||= []).push(id);
  const filled = byColumn.filter(Boolean);
  const middle = (ids) => ids.reduce((sum, id) => sum + nodes.get(id).y, 0) / ids.length;
  for (const column of filled) column.forEach((id, at) => { nodes.get(id).y = at * (HEIGHT + GAP); });
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const way = sweep % 2 ? [...filled].reverse() : filled;
    for (const column of way) {
      const wish = new Map();
      for (const id of column) {
        const { before, after } = near.get(id);
        const others = [...before, ...after];
        wish.set(id, others.length ? middle(others) : nodes.get(id).y);
      }
      column.sort((one, other) => wish.get(one) - wish.get(other));
      let low = -Infinity;
      const free = column.map((id) => { low = Math.max(wish.get(id), low + HEIGHT + GAP); return low; });
      const shift = column.reduce((sum, id, at) => sum + wish.get(id) - free[at], 0) / column.length;
      column.forEach((id, at) => { nodes.get(id).y = free[at] + shift; });
    }
  }
  const least = Math.min(...part.map((id) => nodes.get(id).y));
  let most = 0;
  for (const id of part) {
    const node = nodes.get(id);
    node.y = Math.round(node.y - least + from);
    most = Math.max(most, node.y + HEIGHT - from);
  }
  return most;
}
