// SPDX-License-Identifier: MIT
// The source listing: one file at a time, how often each line ran beside it.

class Source {
  constructor(files) {
    this.files = files;
    const choice = byId("source-file");
    choice.append(...files.map((file, i) => element("option", { value: i },
      `${file.path} (${count(file.instructions)} instructions)${file.text ? "" : ", without text"}`)));
    choice.addEventListener("change", () => this.show(Number(choice.value)));
    byId("source-next").addEventListener("click", () => this.next());
    byId("source-box").addEventListener("keydown", (event) => {
      if (event.key === "n") this.next();
    });
    this.show(0);
  }

  show(number) {
    const file = this.files[number];
    const counts = new Map(file.counts.map(([line, ran, executed]) => [line, [ran, executed]]));
    const lines = file.text ? file.text.map((_, i) => i + 1) : [...counts.keys()];
    const whole = Math.max(...file.counts.map((one) => one[2]), 1);
    const body = element("tbody");
    for (const line of lines) {
      const [ran, executed] = counts.get(line) ?? [0, 0];
      const bar = element("span", { "aria-hidden": "true" });
      bar.style.width = `${(90 * executed) / whole}px`;
      const row = element("tr", { "data-line": line, class: ran || !file.text ? "" : "cold" },
        element("td", { class: "count", title: ran ? `${count(executed)} instructions` : "" }, ran ? count(ran) : ""),
        element("td", { class: "bar" }, ...(executed ? [bar] : [])), element("td", { class: "line" }, String(line)),
        element("td", { class: "text" }, file.text ? file.text[line - 1] : ""));
      body.append(row);
    }
    const head = element("thead", {}, element("tr", {}, ...["ran", "share", "line", ""].map((name) =>
      element("th", { scope: "col", class: name === "ran" || name === "line" ? "n" : "" }, name))));
    byId("source-box").replaceChildren(element("table", {}, head, body));
    byId("source-note").textContent = file.note;
    this.order = [...file.counts].sort((a, b) => b[2] - a[2]).map((one) => one[0]);
    this.place = -1;
  }

  /** Go to the next line by instructions. */
  next() {
    this.place = (this.place + 1) % this.order.length;
    const box = byId("source-box");
    box.querySelector("tr.here")?.classList.remove("here");
    const row = box.querySelector(`tr[data-line="${this.order[this.place]}"]`);
    if (!row) return;
    row.classList.add("here");
    box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }
}
