// SPDX-License-Identifier: MIT
// The flame graph, outermost frames on top (an icicle): widths are shares of instructions or time.

class Flame {
  static ROW = 21;

  constructor(trees) {
    this.trees = trees;
    this.box = byId("flame-box");
    this.canvas = byId("flame-canvas");
    this.draw = eachFrame(() => this.drawNow());
    this.pick();
    this.listen();
    follow(this.box, this.draw);
  }

  pick() {
    this.tree = this.trees[byId("flame-threads").checked ? "threads" : "together"];
    this.measure = byId("flame-measure").value;
    this.size = this.tree[this.measure];
    this.children = this.tree.parent.map(() => []);
    this.tree.parent.forEach((parent, node) => parent >= 0 && this.children[parent].push(node));
    for (const nodes of this.children) nodes.sort((a, b) => this.size[b] - this.size[a]);
    this.top = this.chosen = 0;
    this.find();
    this.tell();
  }

  label(node) {
    if (node === 0) return "all";
    if (this.tree.thread[node] !== null) {
      const thread = (data.threads ?? []).find((one) => one.thread === this.tree.thread[node]);
      return `thread ${this.tree.thread[node]}` + (thread ? ` ${thread.name}` : "");
    }
    return text(this.tree.name[node]) || "(unknown)";
  }

  /** Where nodes are below the one zoomed into: [node, left, width, level], shares of the whole width. */
  place() {
    const placed = [];
    const lineage = [];
    for (let node = this.tree.parent[this.top]; node >= 0; node = this.tree.parent[node]) lineage.unshift(node);
    lineage.forEach((node, level) => placed.push([node, 0, 1, level]));
    const todo = [[this.top, 0, 1, lineage.length]];
    while (todo.length) {
      const one = todo.pop();
      placed.push(one);
      const [node, from, width, level] = one;
      let left = from;
      for (const child of this.children[node]) {
        const share = this.size[node] ? (this.size[child] / this.size[node]) * width : 0;
        if (share * this.width >= 0.4) todo.push([child, left, share, level + 1]);
        left += share;
      }
    }
    return placed;
  }

  drawNow() {
    this.width = this.box.clientWidth;
    this.placed = this.place();
    const levels = 1 + Math.max(...this.placed.map((one) => one[3]));
    const context = sized(this.canvas, this.width, levels * Flame.ROW + 2);
    const paint = Object.fromEntries(["flame", "flame-2", "flame-ink", "found", "found-ink", "card", "focus", "line"].map(
      (name) => [name, colour(name)]));
    context.font = `12px ${FONT}`;
    for (const [node, left, share, level] of this.placed) {
      const x = left * this.width, width = Math.max(share * this.width - 1, 0.5), y = level * Flame.ROW + 1;
      const found = this.found.has(node);
      context.globalAlpha = level < this.placed[0][3] || (node !== this.top && this.above(node)) ? 0.6 : 1;
      context.fillStyle = found ? paint.found : level % 2 ? paint["flame-2"] : paint.flame;
      context.fillRect(x, y, width, Flame.ROW - 1);
      context.globalAlpha = 1;
      context.fillStyle = found ? paint["found-ink"] : paint["flame-ink"];
      const shown = fitted(context, this.label(node), width - 8);
      if (shown) context.fillText(shown, x + 4, y + 14.5);
      if (node === this.chosen) {
        context.strokeStyle = paint.focus;
        context.lineWidth = 3;
        context.strokeRect(x + 1, y + 1, Math.max(width - 2, 1), Flame.ROW - 3);
      }
    }
  }

  above(node) {
    for (let one = this.tree.parent[this.top]; one >= 0; one = this.tree.parent[one]) if (one === node) return true;
    return false;
  }

  find() {
    const wanted = byId("flame-find").value.trim().toLowerCase();
    this.found = new Set();
    let sum = 0;
    if (wanted) {
      const inside = new Set(); // below one that is found: counted there already
      this.tree.parent.forEach((parent, node) => {
        if (inside.has(parent)) inside.add(node);
        if (node && this.label(node).toLowerCase().includes(wanted)) {
          this.found.add(node);
          if (!inside.has(node)) sum += this.size[node];
          inside.add(node);
        }
      });
    }
    const whole = this.size[0] || 1;
    byId("flame-found").textContent = wanted ? `${this.found.size} found, ${((100 * sum) / whole).toFixed(1)} %` : "";
    this.draw();
  }

  zoom(node) {
    this.top = this.chosen = node;
    this.tell();
    this.draw();
  }

  choose(node) {
    if (node === undefined || node < 0) return;
    this.chosen = node;
    this.tell();
    this.draw();
  }

  tell() {
    const { instructions, own_instructions: own, time, own_time: ownTime, calls } = this.tree;
    const node = this.chosen, share = ((100 * this.size[node]) / (this.size[0] || 1)).toFixed(2);
    byId("flame-status").textContent = `${this.label(node)}: ${share} % of ${this.measure}; ` +
      `${count(instructions[node])} instructions (own ${count(own[node])}), ${duration(time[node])} ` +
      `(own ${duration(ownTime[node])}), ${count(calls[node])} calls with all it called`;
  }

  hit(event) {
    const level = Math.floor(event.offsetY / Flame.ROW), x = event.offsetX / this.width;
    return this.placed.find(([, left, share, at]) => at === level && x >= left && x < left + share)?.[0];
  }

  listen() {
    byId("flame-measure").addEventListener("change", () => this.pick());
    byId("flame-threads").addEventListener("change", () => this.pick());
    byId("flame-find").addEventListener("input", () => this.find());
    byId("flame-all").addEventListener("click", () => this.zoom(0));
    this.canvas.addEventListener("click", (event) => {
      const node = this.hit(event);
      if (node !== undefined) this.zoom(node);
    });
    this.canvas.addEventListener("mousemove", (event) => {
      const node = this.hit(event);
      this.canvas.title = node === undefined ? "" : this.label(node);
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const parent = this.tree.parent[this.chosen];
    const beside = parent < 0 ? [] : this.children[parent];
    const place = beside.indexOf(this.chosen);
    const keys = {
      ArrowDown: () => this.choose(this.children[this.chosen][0]), ArrowUp: () => this.choose(parent),
      ArrowLeft: () => this.choose(beside[place - 1]), ArrowRight: () => this.choose(beside[place + 1]),
      Enter: () => this.zoom(this.chosen), Escape: () => this.zoom(Math.max(this.tree.parent[this.top], 0)),
      0: () => this.zoom(0),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }
}
