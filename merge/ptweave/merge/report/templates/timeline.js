// SPDX-License-Identifier: MIT
// The timeline: a row a thread; above what it ran and waited for, below its system calls, gaps across.

class Timeline {
  static GUTTER = 190;
  static ROW = 40;
  static AXIS = 30;
  static LANES = [[6, 18], [6, 18], [26, 7], [3, 34]]; // by kind: run, operation, system call, gap: from, height

  constructor(line, threads, openThunk) {
    this.line = line;
    this.threads = threads;
    this.openThunk = openThunk;
    this.box = byId("timeline-box");
    this.rowOf = new Map(threads.map((thread, row) => [thread.thread, row]));
    this.spans = threads.map(() => []);
    line.thread.forEach((thread, i) => this.spans[this.rowOf.get(thread)].push(i));
    this.from = 0;
    this.to = line.length;
    this.row = Math.max(0, threads.findIndex((thread) => !thread.own));
    this.chosen = -1;
    this.draw = eachFrame(() => this.drawNow());
    this.legend();
    this.listen();
    follow(this.box, this.draw);
    this.tell();
  }

  // --- looks ---

  fills(context) {
    const wait = colour("wait");
    return {
      run: colour("run"), operation: colour("operation"), wait: stripes(context, wait, colour("mark")),
      system: colour("system"), gap: colour("gap"), ink: colour("ink"), soft: colour("soft"), line: colour("line"),
      hover: colour("hover"), focus: colour("focus"), card: colour("card"),
    };
  }

  fillOf(fills, span) {
    const { kind, wait } = this.line;
    if (kind[span] === 1) return wait[span] >= 0 ? fills.wait : fills.operation;
    return [fills.run, fills.operation, fills.system, fills.gap][kind[span]];
  }

  legend() {
    const names = [["run", "running"], ["operation", "synchronisation operation"], ["wait", "waited for another thread"],
      ["system", "system call"], ["gap", "gap in the record"]];
    const draw = () => {
      byId("timeline-legend").replaceChildren(...names.map(([name, title]) => {
        const canvas = element("canvas", { "aria-hidden": "true" });
        const context = sized(canvas, 22, 12);
        if (name === "gap") this.gapMark(context, 11, 0, 12, colour("gap"));
        else {
          context.fillStyle = this.fills(context)[name];
          context.fillRect(0, name === "system" ? 4 : 0, 22, name === "system" ? 5 : 12);
        }
        return element("span", {}, canvas, title);
      }));
    };
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  gapMark(context, x, y, height, fill) {
    context.fillStyle = fill;
    context.fillRect(x - 1, y, 2, height);
    context.beginPath();
    context.moveTo(x - 5, y);
    context.lineTo(x + 5, y);
    context.lineTo(x, y + 7);
    context.fill();
  }

  x(t) {
    return Timeline.GUTTER + ((t - this.from) / (this.to - this.from)) * this.width;
  }

  drawNow() {
    const whole = this.box.clientWidth;
    this.width = Math.max(whole - Timeline.GUTTER - 14, 50);
    this.drawAxis(whole);
    const height = this.threads.length * Timeline.ROW + 6;
    const context = sized(byId("timeline-rows"), whole, height);
    const fills = this.fills(context);
    this.threads.forEach((thread, row) => this.drawRow(context, fills, thread, row, whole));
    this.drawRelease(context, fills);
  }

  drawAxis(whole) {
    const context = sized(byId("timeline-axis"), whole, Timeline.AXIS);
    const span = this.to - this.from;
    let step = 10 ** Math.floor(Math.log10(Math.max(span / (this.width / 110), 1)));
    for (const factor of [1, 2, 5, 10]) {
      if ((step * factor / span) * this.width >= 80) {
        step *= factor;
        break;
      }
    }
    context.font = `12px ${FONT}`;
    context.fillStyle = colour("soft");
    context.strokeStyle = colour("line");
    context.fillText("thread", 12, 19);
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = this.x(t);
      context.beginPath();
      context.moveTo(x, 22);
      context.lineTo(x, Timeline.AXIS);
      context.stroke();
      const label = duration(t);
      const half = context.measureText(label).width / 2;
      context.fillText(label, clamp(x - half, Timeline.GUTTER - 20, whole - 2 * half - 4), 17);
    }
  }

  drawRow(context, fills, thread, row, whole) {
    const top = row * Timeline.ROW;
    if (row === this.row) {
      context.fillStyle = fills.hover;
      context.fillRect(0, top, whole, Timeline.ROW);
      context.fillStyle = fills.focus;
      context.fillRect(0, top, 4, Timeline.ROW);
    }
    context.fillStyle = fills.ink;
    context.font = `13px ${FONT}`;
    context.fillText(fitted(context, `${thread.thread}  ${thread.name}`, Timeline.GUTTER - 26), 12, top + 18);
    context.fillStyle = fills.soft;
    context.font = `11px ${FONT}`;
    context.fillText(fitted(context, thread.own ? "of ptweave's library" : `tid ${thread.tid}`, Timeline.GUTTER - 26), 12,
      top + 33);
    context.save();
    context.beginPath();
    context.rect(Timeline.GUTTER, top, this.width, Timeline.ROW);
    context.clip();
    if (thread.begin !== null) {
      context.fillStyle = fills.line;
      const left = this.x(thread.begin);
      context.fillRect(left, top + 23.5, this.x(thread.end ?? this.line.length) - left, 1);
    }
    if (!this.line.complete) this.drawFilled(context, fills, row, top);
    this.drawSpans(context, fills, row, top);
    context.restore();
  }

  drawFilled(context, fills, row, top) {
    const bins = this.line.filled[row];
    const each = this.line.length / bins[0].length;
    const order = [[0, fills.run], [1, fills.operation], [2, fills.system]];
    const first = Math.max(0, Math.floor(this.from / each)), last = Math.min(bins[0].length, Math.ceil(this.to / each));
    for (let bin = first; bin < last; bin++) {
      const x = this.x(bin * each), width = this.x((bin + 1) * each) - x;
      let y = top + 24;
      for (const [kind, fill] of order) {
        const [from, tall] = Timeline.LANES[kind];
        const height = (bins[kind][bin] / 99) * tall;
        if (!height) continue;
        context.fillStyle = fill;
        if (kind === 2) context.fillRect(x, top + from + tall - height, width, height);
        else context.fillRect(x, (y -= height), width, height);
      }
    }
  }

  drawSpans(context, fills, row, top) {
    const { at, ns, kind } = this.line;
    for (const span of this.spans[row]) {
      if (at[span] > this.to || at[span] + ns[span] < this.from) continue;
      const x = this.x(at[span]);
      const [from, height] = Timeline.LANES[kind[span]];
      if (kind[span] === 3) {
        this.gapMark(context, x, top + from, height, fills.gap);
        continue;
      }
      const width = Math.max(this.x(at[span] + ns[span]) - x, 0.7);
      context.fillStyle = this.fillOf(fills, span);
      context.fillRect(x, top + from, width, height);
      if (width > 46) this.name(context, fills, span, x, width, top + from);
    }
    if (this.chosen >= 0 && this.rowOf.get(this.line.thread[this.chosen]) === row) {
      const [from, height] = Timeline.LANES[kind[this.chosen]];
      const x = this.x(at[this.chosen]);
      context.strokeStyle = fills.focus;
      context.lineWidth = 3;
      context.strokeRect(x - 1.5, top + from - 1.5, Math.max(this.x(at[this.chosen] + ns[this.chosen]) - x, 1) + 3, height + 3);
    }
  }

  name(context, fills, span, x, width, y) {
    const { kind, detail, wait } = this.line;
    if (kind[span] === 2 || (kind[span] === 0)) return;
    const label = text(detail[span]);
    context.font = `11px ${FONT}`;
    const left = Math.max(x, Timeline.GUTTER), room = Math.min(x + width, Timeline.GUTTER + this.width) - left;
    const shown = fitted(context, label, room - 10);
    if (!shown) return;
    if (wait[span] >= 0) {
      context.fillStyle = fills.card;
      context.fillRect(left + 3, y + 2, context.measureText(shown).width + 6, 14);
    }
    context.fillStyle = fills.ink;
    context.fillText(shown, left + 6, y + 13);
  }

  /** From the release that ended the chosen wait to where the thread went on. */
  drawRelease(context, fills) {
    if (this.chosen < 0 || this.line.wait[this.chosen] < 0) return;
    const [holder, , released] = data.waits[this.line.wait[this.chosen]];
    const from = this.rowOf.get(holder), to = this.rowOf.get(this.line.thread[this.chosen]);
    if (from === undefined || released === null) return;
    const x0 = this.x(released), x1 = this.x(this.line.at[this.chosen] + this.line.ns[this.chosen]);
    const y0 = from * Timeline.ROW + 15, y1 = to * Timeline.ROW + 15;
    context.strokeStyle = context.fillStyle = fills.ink;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
    for (const [x, y, size] of [[x0, y0, 4], [x1, y1, 5]]) {
      context.beginPath();
      context.arc(x, y, size, 0, 2 * Math.PI);
      context.fill();
    }
  }

  // --- moving ---

  show(from, to) {
    const least = Math.min(20, this.line.length);
    const length = clamp(to - from, least, this.line.length);
    const middle = (from + to) / 2;
    this.from = clamp(middle - length / 2, 0, this.line.length - length);
    this.to = this.from + length;
    this.command();
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
    this.tell();
  }

  pan(share) {
    const by = clamp(share * (this.to - this.from), -this.from, this.line.length - this.to);
    this.show(this.from + by, this.to + by);
    this.tell();
  }

  do(what) {
    ({ in: () => this.zoom(0.5), out: () => this.zoom(2), left: () => this.pan(-0.25), right: () => this.pan(0.25),
      all: () => { this.show(0, this.line.length); this.tell(); } })[what]();
  }

  command() {
    const begin = BigInt(this.line.begin), at = (t) => begin + BigInt(Math.round(t));
    const thread = this.threads[this.row];
    byId("timeline-command").textContent = `ptweave timeline ${this.line.run}` +
      (thread ? ` --thread ${thread.thread}` : "") + ` --from ${at(this.from)} --to ${at(this.to)}`;
  }

  // --- choosing ---

  /** Make the chosen span visible, with its thread. */
  reveal() {
    const begin = this.line.at[this.chosen], end = begin + this.line.ns[this.chosen];
    const length = this.to - this.from;
    if (end - begin > length * 0.9) this.show(begin - (end - begin) * 0.1, end + (end - begin) * 0.1);
    else if (begin < this.from || end > this.to) this.show((begin + end - length) / 2, (begin + end + length) / 2);
    const rows = byId("timeline-rows").parentElement, top = this.row * Timeline.ROW;
    if (top < rows.scrollTop) rows.scrollTop = top;
    if (top + Timeline.ROW > rows.scrollTop + rows.clientHeight) rows.scrollTop = top + Timeline.ROW - rows.clientHeight;
  }

  choose(span) {
    this.chosen = span;
    if (span >= 0) {
      this.row = this.rowOf.get(this.line.thread[span]);
      this.reveal();
    }
    this.command();
    this.tell();
    this.draw();
  }

  /** The next span in the chosen thread, one way or the other, that `wanted` takes. */
  step(way, wanted = () => true) {
    const spans = this.spans[this.row] ?? [];
    const middle = (this.from + this.to) / 2;
    let place = spans.indexOf(this.chosen);
    if (place < 0) place = spans.findIndex((span) => this.line.at[span] >= middle) - (way > 0 ? 1 : 0);
    for (let i = place + way; i >= 0 && i < spans.length; i += way) {
      if (wanted(spans[i])) return this.choose(spans[i]);
    }
    return undefined;
  }

  /** The next wait of any thread, longest first. */
  nextWait() {
    const { wait } = this.line;
    this.waits ??= [...wait.keys()].filter((span) => wait[span] >= 0).sort((a, b) => wait[a] - wait[b]);
    if (this.waits.length) this.choose(this.waits[(this.waits.indexOf(this.chosen) + 1) % this.waits.length]);
  }

  describe(span) {
    const { thread, kind, detail, thunk, at, ns, object, wait } = this.line;
    const where = text(this.line.function[span]);
    const parts = [`thread ${thread[span]}, ${duration(at[span])}:`];
    if (kind[span] === 0) parts.push(`ran for ${duration(ns[span])} (thunk ${thread[span]}.${thunk[span]})`);
    if (kind[span] === 1) {
      parts.push(`${text(detail[span])} took ${duration(ns[span])}`);
      if (object[span] >= 0) parts.push(`on ${text(object[span])}`);
      if (where) parts.push(`in ${where}`);
      parts.push(`(begins thunk ${thread[span]}.${thunk[span]})`);
    }
    if (kind[span] === 2) parts.push(`system call ${text(detail[span])} took ${duration(ns[span])}`);
    if (kind[span] === 3) parts.push(`gap in the record: ${text(detail[span])}`);
    if (wait[span] >= 0) {
      const [holder, held, released, by] = data.waits[wait[span]];
      parts.push(`— waited for thread ${holder}` + (held === null ? "" : `, thunk ${holder}.${held}`) +
        (text(by) ? `, in ${text(by)}` : "") + (released === null ? "" : `, which released at ${duration(released)}`));
    }
    return parts.join(" ");
  }

  tell() {
    const thread = this.threads[this.row];
    byId("timeline-status").textContent = this.chosen >= 0 ? this.describe(this.chosen)
      : `${duration(this.from)} to ${duration(this.to)}` +
        (thread ? `, thread ${thread.thread} ${thread.name}, ${count(this.spans[this.row].length)} spans` : "");
  }

  /** The span drawn at a point: gaps, then system calls, then the rest. */
  hit(x, y) {
    const row = Math.floor(y / Timeline.ROW);
    if (row < 0 || row >= this.threads.length || x < Timeline.GUTTER) return [row, -1];
    const t = this.from + ((x - Timeline.GUTTER) / this.width) * (this.to - this.from);
    const near = (3 / this.width) * (this.to - this.from);
    const { at, ns, kind } = this.line;
    const [from, height] = Timeline.LANES[2];
    const low = y - row * Timeline.ROW >= from - 2 && y - row * Timeline.ROW <= from + height + 2;
    let best = -1, distance = Infinity;
    for (const span of this.spans[row]) {
      if (kind[span] !== 3 && (kind[span] === 2) !== low) continue;
      const off = Math.max(at[span] - t, t - at[span] - ns[span], 0) - (kind[span] === 3 ? near : 0);
      if (off <= near && off < distance) {
        best = span;
        distance = off;
      }
    }
    return [row, best];
  }

  listen() {
    byId("timeline-part").querySelectorAll("[data-do]").forEach((button) =>
      button.addEventListener("click", () => this.do(button.dataset.do)));
    this.box.addEventListener("keydown", (event) => this.key(event));
    const rows = byId("timeline-rows");
    let held = null;
    rows.addEventListener("pointerdown", (event) => {
      held = { x: event.offsetX, y: event.offsetY, from: this.from, to: this.to, moved: false };
      rows.setPointerCapture(event.pointerId);
    });
    rows.addEventListener("pointermove", (event) => {
      if (!held) return;
      const by = ((held.x - event.offsetX) / this.width) * (held.to - held.from);
      held.moved ||= Math.abs(held.x - event.offsetX) > 3;
      if (held.moved) this.show(held.from + clamp(by, -held.from, this.line.length - held.to),
        held.to + clamp(by, -held.from, this.line.length - held.to));
    });
    rows.addEventListener("pointerup", (event) => {
      if (held && !held.moved) {
        const [row, span] = this.hit(event.offsetX, event.offsetY);
        if (this.threads[row]) this.row = row;
        this.choose(span);
      }
      held = null;
    });
    this.box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const t = this.from + ((event.offsetX - Timeline.GUTTER) / this.width) * (this.to - this.from);
      this.zoom(event.deltaY > 0 ? 1.3 : 1 / 1.3, clamp(t, this.from, this.to));
    }, { passive: false });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = (row) => { this.row = clamp(row, 0, this.threads.length - 1); this.choose(-1); };
    const keys = {
      "+": () => this.do("in"), "=": () => this.do("in"), "-": () => this.do("out"), "_": () => this.do("out"),
      ArrowLeft: () => this.do("left"), ArrowRight: () => this.do("right"), 0: () => this.do("all"),
      Home: () => this.do("all"), ArrowUp: () => to(this.row - 1), ArrowDown: () => to(this.row + 1),
      n: () => this.step(1), p: () => this.step(-1), w: () => this.nextWait(), Escape: () => this.choose(-1),
      Enter: () => {
        const { thread, thunk } = this.line;
        if (this.chosen >= 0 && thunk[this.chosen] !== null) this.openThunk(thread[this.chosen], thunk[this.chosen]);
      },
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  }
}
