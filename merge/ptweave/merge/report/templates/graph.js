// SPDX-License-Identifier: MIT
// Dependences, from one thunk to the next: what leads into it on the left, what leads out of it on the right.

class Graph {
  static BOX = { width: 270, height: 44, gap: 12, middle: 300 };
  static MOST = 14; // neighbours on a side at once

  constructor(graph) {
    this.graph = graph;
    this.nodes = new Map(graph.nodes.thread.map((thread, i) => [`${thread}.${graph.nodes.thunk[i]}`, i]));
    this.past = [];
    this.page = { left: 0, right: 0 };
    this.legend();
    byId("graph-back").addEventListener("click", () => this.back());
    byId("graph-find").addEventListener("change", (event) => this.find(event.target.value.trim()));
    byId("graph-box").addEventListener("keydown", (event) => {
      if (event.key === "Backspace") {
        event.preventDefault();
        this.back();
      }
    });
    if (graph.focus) this.show(...graph.focus);
  }

  legend() {
    const names = [["sync", "synchronisation"], ["data", "memory"], ["control", "same thread"], ["input", "input or output"]];
    byId("graph-legend").replaceChildren(...names.map(([kind, title]) => element("span", {}, svg("svg",
      { width: 34, height: 10, "aria-hidden": "true" }, svg("path", { class: `edge ${kind}`, d: "M0 5H34" })), title)));
  }

  find(name) {
    const found = /^(\d+)\.(\d+)$/.exec(name);
    if (found && this.nodes.has(name)) this.go(Number(found[1]), Number(found[2]));
    else byId("graph-status").textContent = found ? `${name} is not in this report` : "write THREAD.THUNK, as in 3.17";
  }

  go(thread, thunk) {
    if (this.here) this.past.push(this.here);
    this.show(thread, thunk, true);
  }

  back() {
    if (this.past.length) this.show(...this.past.pop(), true);
  }

  /** Neighbours on one side: [kind, thread, thunk, until, what is said of the edge, transfer]. */
  neighbours(thread, thunk, side) {
    const { edges } = this.graph;
    const [near, far] = side === "left" ? ["to", "from"] : ["from", "to"];
    const found = [];
    const beside = thunk + (side === "left" ? -1 : 1);
    if (this.nodes.has(`${thread}.${beside}`)) found.push({ kind: "control", thread, thunk: beside, until: beside, note: "" });
    edges.kind.forEach((number, i) => {
      if (edges[`${near}_thread`][i] !== thread || edges[`${near}_thunk`][i] > thunk || edges[`${near}_until`][i] < thunk) return;
      const kind = text(number);
      const note = kind === "data" ? `${count(edges.pages[i])} page${edges.pages[i] === 1 ? "" : "s"}, ${text(edges.page[i])}`
        : kind === "sync" ? text(edges.object[i]) : "";
      found.push({ kind, thread: edges[`${far}_thread`][i], thunk: edges[`${far}_thunk`][i], until: edges[`${far}_until`][i],
        note, transfer: edges.transfer[i] });
    });
    return found;
  }

  show(thread, thunk, focus = false) {
    this.here = [thread, thunk];
    this.page = { left: 0, right: 0 };
    this.render(focus);
  }

  render(focus) {
    const [thread, thunk] = this.here;
    const sides = { left: this.neighbours(thread, thunk, "left"), right: this.neighbours(thread, thunk, "right") };
    const { width, height, gap, middle } = Graph.BOX;
    const shown = (side) => sides[side].slice(this.page[side], this.page[side] + Graph.MOST);
    const rows = (side) => shown(side).length + (sides[side].length > Graph.MOST ? 1 : 0);
    const whole = Math.max(rows("left"), rows("right"), 2) * (height + gap) + 24;
    const total = Math.max(byId("graph-box").clientWidth, 900);
    const picture = svg("svg", { viewBox: `0 0 ${total} ${whole}`, height: whole, role: "group",
      "aria-label": `dependences of thunk ${thread}.${thunk}` });
    const centre = { x: (total - middle) / 2, y: whole / 2 - 36, width: middle, height: 72 };
    const drawSide = (side) => {
      const x = side === "left" ? 16 : total - width - 16;
      const top = (whole - rows(side) * (height + gap) + gap) / 2;
      shown(side).forEach((one, place) => {
        const y = top + place * (height + gap);
        const from = side === "left" ? x + width : centre.x + centre.width;
        const to = side === "left" ? centre.x : x;
        const [y0, y1] = side === "left" ? [y + height / 2, whole / 2] : [whole / 2, y + height / 2];
        const bend = (to - from) * 0.5;
        picture.append(svg("path", { class: `edge ${one.kind}`, d: `M${from} ${y0}C${from + bend} ${y0} ${to - bend} ${y1} ${to} ${y1}` }));
        picture.append(this.neighbour(one, x, y));
      });
      if (sides[side].length > Graph.MOST) {
        const y = top + shown(side).length * (height + gap);
        picture.append(this.box(`${side} more`, x, y, width, height,
          [`more: ${count(sides[side].length)} in all`, `from ${this.page[side] + 1} on are shown`], "", () => {
            this.page[side] = this.page[side] + Graph.MOST >= sides[side].length ? 0 : this.page[side] + Graph.MOST;
            this.render(true);
          }));
      }
    };
    drawSide("left");
    drawSide("right");
    const here = this.box("here", centre.x, centre.y, centre.width, centre.height, this.lines(thread, thunk), "here");
    picture.append(here);
    byId("graph-box").replaceChildren(picture);
    byId("graph-back").disabled = !this.past.length;
    byId("graph-find").value = `${thread}.${thunk}`;
    const node = this.nodes.get(`${thread}.${thunk}`);
    byId("graph-status").textContent = `${this.lines(thread, thunk).filter(Boolean).join(", ")}: depends on ` +
      `${count(sides.left.length)}, leads to ${count(sides.right.length)}` +
      (this.graph.nodes.whole[node] ? "" : " (not all of its edges are in this report)");
    if (focus) here.focus({ preventScroll: true });
  }

  lines(thread, thunk) {
    const node = this.nodes.get(`${thread}.${thunk}`);
    if (node === undefined) return [`${thread}.${thunk}`];
    const { operation, object, at, wait } = this.graph.nodes;
    const where = text(this.graph.nodes.function[node]);
    return [`${thread}.${thunk}  ${text(operation[node])}${text(object[node]) ? ` ${text(object[node])}` : ""}`,
      where ? `in ${where}` : "", at[node] === null ? "" : `at ${duration(at[node])}, took ${duration(wait[node])}`];
  }

  neighbour(one, x, y) {
    const { width, height } = Graph.BOX;
    if (one.thread === null) {
      const known = this.graph.transfers[one.transfer] ?? { kind: "transfer", path: null, offset: null, size: null };
      const place = known.offset === null ? "" : `@${known.offset}`;
      return this.box(`transfer ${one.transfer}`, x, y, width, height,
        [`${known.kind} ${known.path ?? "(unknown)"}${place}`, known.size === null ? "" : `${count(known.size)} bytes`], "");
    }
    const range = one.until > one.thunk ? ` … ${one.thread}.${one.until}` : "";
    const [first, second] = this.lines(one.thread, one.thunk);
    return this.box(`${one.kind} ${one.thread}.${one.thunk}`, x, y, width, height,
      [range ? `${one.thread}.${one.thunk}${range}` : first, one.note || second || ""], "go", () => this.go(one.thread, one.thunk));
  }

  box(label, x, y, width, height, lines, kind, act = null) {
    const fits = Math.floor((width - 20) / 7.6);
    const shown = lines.filter(Boolean).map((line) => (line.length > fits ? line.slice(0, fits - 1) + "…" : line));
    const made = svg("g", { class: `node ${kind || (act ? "go" : "")}`, tabindex: kind === "here" || act ? 0 : -1,
      role: act ? "button" : "img", "aria-label": `${label}: ${lines.filter(Boolean).join(", ")}` },
    svg("title", {}, lines.filter(Boolean).join("\n")), svg("rect", { x, y, width, height, rx: 7 }));
    shown.forEach((line, i) => made.append(svg("text", { x: x + 10, y: y + (height - (shown.length - 1) * 18) / 2 + 4 + i * 18,
      class: i ? "soft" : "" }, line)));
    if (act) {
      made.addEventListener("click", act);
      made.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        act();
      });
    }
    return made;
  }
}
