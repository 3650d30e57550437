// SPDX-License-Identifier: MIT
// What all pictures share. Texts of the run become text nodes or are drawn: nothing of it is ever markup.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const text = (number) => (number < 0 ? "" : data.strings[number]);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const FONT = 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** A time in ns as text: three digits and a unit. */
function duration(ns) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(ns >= 1000 * size ? 6 : 4))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

const count = (number) => number.toLocaleString("en");

/** An element with attributes and children; strings become text nodes. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Text cut to a width on a canvas. */
function fitted(context, string, width) {
  if (width < 12) return "";
  if (context.measureText(string).width <= width) return string;
  let low = 0, high = string.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(string.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? string.slice(0, low) + "…" : "";
}

/** Make a canvas this large in CSS pixels, sharp on any screen; returns its context. */
function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** Stripes, so that a kind is told by more than its colour. */
function stripes(context, base, stripe) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const on = tile.getContext("2d");
  on.fillStyle = base;
  on.fillRect(0, 0, 8, 8);
  on.strokeStyle = stripe;
  on.lineWidth = 1.6;
  on.beginPath();
  for (const from of [-8, 0, 8]) {
    on.moveTo(from, 8);
    on.lineTo(from + 8, 0);
  }
  on.stroke();
  return context.createPattern(tile, "repeat");
}

/** Call at most once a frame. */
function eachFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/** Draw again when the box changes its width, or light and dark change. */
function follow(box, draw) {
  new ResizeObserver(draw).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
