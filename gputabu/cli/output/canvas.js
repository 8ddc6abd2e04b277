/* What the pictures of a report have in common: canvases that fit the page, with its colours; texts, axes, and what is
   said of the place under the mouse. Nothing is fetched. */
"use strict";
// ---- words ----
const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const short = new Intl.NumberFormat("en", {maximumSignificantDigits: 5});
const four = new Intl.NumberFormat("en", {maximumSignificantDigits: 4});
function shown(x) {
  if (x === null || Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  if (size >= 1e8 || (size > 0 && size < 1e-4)) return x.toExponential(3);
  return (size >= 1e4 ? whole : short).format(x);
}

// ---- canvases ----
const ink = {};
const pictures = [];

/** Colours of the page, which differ in the dark. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "quiet", "paper", "line", "below", "middle", "above", "main", "current"])
    ink[name] = style.getPropertyValue(`--${name}`).trim();
}

const tip = document.body.appendChild(document.createElement("div"));
tip.className = "tip";
tip.hidden = true;
function tell(lines, event) {
  tip.replaceChildren(...lines.map(line => Object.assign(document.createElement("div"), {textContent: line})));
  tip.hidden = false;
  const room = document.documentElement.clientWidth;
  const beside = event.clientX + 16 + tip.offsetWidth < room ? event.clientX + 16 : event.clientX - 16 - tip.offsetWidth;
  const above = event.clientY + 20 + tip.offsetHeight < innerHeight ? event.clientY + 20 : event.clientY - 12 - tip.offsetHeight;
  tip.style.left = `${Math.max(4, beside)}px`;
  tip.style.top = `${Math.max(4, above)}px`;
}

/** A canvas, who draws on it, and what is under the mouse: `at` finds it, `lines` describes it, `act` is its click. */
class Picture {
  constructor(id, {height, draw, at, lines, act, hover}) {
    Object.assign(this, {canvas: element(id), height, draw, at, lines, act, hover});
    this.pen = this.canvas.getContext("2d");
    this.canvas.addEventListener("pointermove", event => this.move(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("click", event => {
      const what = at(event.offsetX, event.offsetY);
      if (act) act(what);
      this.move(event);
    });
    pictures.push(this);
  }

  paint() {
    const width = this.canvas.parentElement.clientWidth, height = this.height(width), scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.pen.clearRect(0, 0, width, height);
    this.pen.lineJoin = "round";
    this.draw(this.pen, width, height);
  }

  move(event) {
    const what = this.at(event.offsetX, event.offsetY);
    if (what === null) return this.leave();
    this.canvas.style.cursor = this.act ? "pointer" : "crosshair";
    tell(this.lines(what), event);
    if (this.hover) this.hover(what);
  }

  leave() {
    this.canvas.style.cursor = "";
    tip.hidden = true;
    if (this.hover) this.hover(null);
  }
}

function write(pen, text, x, y, {align = "left", base = "middle", colour = ink.quiet, size = 12, bold = false} = {}) {
  pen.font = `${bold ? "600 " : ""}${size}px system-ui, sans-serif`;
  pen.textAlign = align;
  pen.textBaseline = base;
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

function widthOf(pen, text, size = 12) {
  pen.font = `${size}px system-ui, sans-serif`;
  return pen.measureText(text).width;
}

/** As much of a text as has room. */
function clipped(pen, text, room, size = 12) {
  if (widthOf(pen, text, size) <= room) return text;
  let length = text.length;
  while (length > 0 && widthOf(pen, `${text.slice(0, length)}…`, size) > room) length--;
  return `${text.slice(0, length)}…`;
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(times => times * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step + 0); // no −0
  const size = Math.max(Math.abs(low), Math.abs(high)), digits = Math.max(1, Math.ceil(Math.log10(size / step) - 1e-9) + 1);
  if (size >= 1e15 || step < 1e-4) return {found, name: x => x === 0 ? "0" : x.toExponential(Math.max(1, digits - 2))};
  const format = size < 1e5 ? {maximumFractionDigits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9))} :
    {notation: "compact", maximumSignificantDigits: digits};
  const numeral = new Intl.NumberFormat("en", format);
  return {found, name: x => numeral.format(x)};
}

/** Extent of numbers with some room on both sides. */
function extent(values, room = 0.04) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value !== null && value < low) low = value;
  for (const value of values) if (value !== null && value > high) high = value;
  if (!(low <= high)) return [0, 1];
  const margin = (high - low) * room || Math.abs(low) * 0.05 || 1;
  return [low - margin, high + margin];
}

/** Draw axes, and return where values are. The name of the vertical one is above it, to leave room at the side. */
function frame(pen, width, height, x, y, names, {top = 22, wholeX = false, unmarked = null} = {}) {
  const bottom = height - 40, vertical = unmarked === null ? ticks(y[0], y[1], (bottom - top) / 45) : {found: []};
  const left = 10 + Math.max(unmarked || 10, ...vertical.found.map(at => widthOf(pen, vertical.name(at)))), right = width - 10;
  let horizontal = ticks(x[0], x[1], (right - left) / 80);
  if (wholeX) horizontal = {...horizontal, found: horizontal.found.filter(Number.isInteger)};
  const px = value => left + (value - x[0]) / (x[1] - x[0]) * (right - left);
  const py = value => bottom - (value - y[0]) / (y[1] - y[0]) * (bottom - top);
  pen.lineWidth = 1;
  pen.strokeStyle = ink.line;
  for (const at of vertical.found) {
    pen.beginPath();
    pen.moveTo(left, py(at));
    pen.lineTo(right, py(at));
    pen.stroke();
    write(pen, vertical.name(at), left - 6, py(at), {align: "right"});
  }
  for (const at of horizontal.found) {
    pen.beginPath();
    pen.moveTo(px(at), bottom);
    pen.lineTo(px(at), bottom + 4);
    pen.stroke();
    write(pen, horizontal.name(at), px(at), bottom + 14, {align: "center"});
  }
  pen.strokeRect(left, top, right - left, bottom - top);
  write(pen, clipped(pen, names[0], right - left), (left + right) / 2, height - 8, {align: "center", colour: ink.ink});
  write(pen, clipped(pen, names[1], right - left), left, top - 11, {colour: ink.ink});
  return {px, py, left, right, top, bottom};
}

function inside(pen, box, draw) {
  pen.save();
  pen.beginPath();
  pen.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  pen.clip();
  draw();
  pen.restore();
}

function dashed(pen, box, points, colour = ink.ink) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  points.forEach(([x, y], i) => i ? pen.lineTo(x, y) : pen.moveTo(x, y));
  pen.stroke();
  pen.setLineDash([]);
}

function paintAll() {
  readColours();
  for (const picture of pictures) picture.paint();
}

/** Paint now, and whenever the page gets another width or other colours. */
function keepPainted() {
  let width = 0;
  new ResizeObserver(() => {
    if (width === document.documentElement.clientWidth) return;
    width = document.documentElement.clientWidth;
    paintAll();
  }).observe(document.documentElement);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", paintAll);
  paintAll();
}
