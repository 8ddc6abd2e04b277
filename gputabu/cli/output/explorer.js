/* The pictures of a report. A cluster that is chosen in one of them stands out in all. The page has the numbers, page.css
   the colours, and canvas.js how to draw. */
"use strict";
const data = JSON.parse(document.getElementById("explored").textContent);
const element = id => document.getElementById(id);
const unpacked = (text, Kind) => new Kind(Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer);

const K = data.sizes.length, columns = data.names.length, axisNames = [...data.names, ...data.components];
const mean = unpacked(data.mean, Float64Array), spread = unpacked(data.spread, Float64Array);
/** Values are written as differences from the mean. */
const values = text => Float64Array.from(unpacked(text, Float32Array), (value, i) => value + mean[i % mean.length]);
const centers = values(data.centers); // K × axes
const rows = {...data.rows, labels: unpacked(data.rows.labels, Int32Array), values: values(data.rows.values)}; // n × axes
const silhouettes = data.silhouettes &&
  {labels: unpacked(data.silhouettes.labels, Int32Array), values: unpacked(data.silhouettes.values, Float32Array)};
const total = data.sizes.reduce((sum, size) => sum + size, 0), largest = Math.max(...data.sizes);
const numbers = [...data.sizes.keys()];
const bySize = [...numbers].sort((a, b) => data.sizes[b] - data.sizes[a] || a - b);
// Neighbours in the order of similarity have different colours, however many clusters there are.
const colours = Array(K);
data.order.forEach((cluster, place) => { colours[cluster] = data.colours[place % data.colours.length]; });

const share = cluster => `${(100 * data.sizes[cluster] / total).toFixed(1)} %`;
const rowsOf = cluster => `${whole.format(data.sizes[cluster])} ${data.sizes[cluster] === 1 ? "row" : "rows"}`;
const valueOf = (cluster, axis) => centers[cluster * axisNames.length + axis];
/** How far a centre is from the mean of a column, in standard deviations. */
const standard = (cluster, j) => spread[j] > 0 ? (valueOf(cluster, j) - mean[j]) / spread[j] : 0;
const silhouettesOf = cluster => silhouettes.values.filter((_, i) => silhouettes.labels[i] === cluster);
const average = values => values.reduce((sum, value) => sum + value, 0) / values.length;
const signed = x => `${Math.abs(x) < 0.05 ? "±" : x < 0 ? "−" : "+"}${Math.abs(x).toFixed(1)}`;

// ---- choosing ----
let chosen = null;

function choose(cluster) {
  chosen = cluster === chosen ? null : cluster;
  describe();
  for (const row of document.querySelectorAll("tr[data-cluster]"))
    row.classList.toggle("chosen", row.dataset.cluster === String(chosen));
  paintAll();
}

function describe() {
  const card = element("chosen"), say = (name, ...children) => {
    const made = document.createElement(name);
    made.append(...children);
    return made;
  };
  card.hidden = chosen === null;
  if (chosen === null) return;
  const strong = [...data.names.keys()].sort((a, b) => Math.abs(standard(chosen, b)) - Math.abs(standard(chosen, a)));
  const swatch = say("span");
  swatch.className = "swatch";
  swatch.style.background = colours[chosen];
  const head = say("strong", swatch, `Cluster ${chosen}`), away = say("button", "×");
  away.title = "Choose none";
  away.addEventListener("click", () => choose(chosen));
  const facts = [`${rowsOf(chosen)}, ${share(chosen)}`];
  if (silhouettes) {
    const mine = silhouettesOf(chosen);
    if (mine.length) facts.push(`silhouette ${average(mine).toFixed(2)}`);
  }
  facts.push(strong.slice(0, 3).map(j => `${data.names[j]} = ${shown(valueOf(chosen, j))} (${signed(standard(chosen, j))} σ)`).join(", "));
  if (data.medoids[chosen] !== null) facts.push(`example: ${data.id} ${data.medoids[chosen]}`);
  const children = [head, ...facts.map(fact => say("span", fact))], other = nearest(chosen);
  if (other !== null) {
    children.push(say("button", `nearest: ${other}`));
    children[children.length - 1].addEventListener("click", () => choose(other));
  }
  card.replaceChildren(...children, away);
}

/** The cluster whose centre is nearest, in standard units. */
function nearest(cluster) {
  let least = Infinity, found = null;
  for (const other of numbers) {
    let sum = 0;
    for (let j = 0; j < columns; j++) sum += (standard(other, j) - standard(cluster, j)) ** 2;
    if (other !== cluster && data.sizes[other] && sum < least) [least, found] = [sum, other];
  }
  return found;
}

// ---- heat map of the centres ----
function heatMap() {
  const box = element("heat-box"), room = element("heat-room"), order = element("heat-order");
  const overview = element("heat-overview"), MOST = 760, HEAD = 132;
  order.append(...["alike together", "largest first", "number", ...data.names.map(name => `by ${name}`)].map(
    (name, i) => new Option(name.slice(0, 40), i)));
  const rowHeight = K <= 12 ? 28 : K <= 40 ? 20 : 16;
  let listed = data.order, place = {};

  function layout(pen, width) {
    const label = widthOf(pen, String(K - 1)) + 24, right = width < 600 ? 74 : 120;
    const cell = Math.min(150, (width - label - right) / columns);
    const widest = Math.max(...data.names.map(name => widthOf(pen, name)));
    const lying = widest <= cell - 6;
    const head = lying ? 24 : cell >= 12 ? Math.min(widest + 12, HEAD) : 8;
    return {label, cell, height: rowHeight, lying, head, right: label + cell * columns};
  }

  function mixed(t) {
    const parse = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
    const from = parse(ink.middle), to = parse(t < 0 ? ink.below : ink.above), part = Math.min(1, Math.abs(t) / 2);
    return from.map((value, i) => Math.round(value + part * (to[i] - value)));
  }

  function drawHead(pen) {
    const {label, cell, lying, head} = place;
    if (head < 12) return;
    data.names.forEach((name, j) => {
      const x = label + (j + 0.5) * cell;
      if (lying) return write(pen, name, x, head - 10, {align: "center"});
      pen.save();
      pen.translate(x, head - 6);
      pen.rotate(-Math.PI / 2);
      write(pen, clipped(pen, name, head - 10), 0, 0);
      pen.restore();
    });
  }

  function drawRow(pen, cluster, y) {
    const {label, cell, height, right} = place, mine = cluster === chosen;
    const alpha = pen.globalAlpha = chosen === null || mine ? 1 : 0.55;
    write(pen, String(cluster), label - 18, y + height / 2, {align: "right", colour: mine ? ink.ink : ink.quiet, bold: mine});
    pen.fillStyle = colours[cluster];
    pen.fillRect(label - 13, y + 2, 8, height - 4);
    for (let j = 0; j < columns; j++) {
      const [r, g, b] = mixed(standard(cluster, j));
      pen.fillStyle = `rgb(${r},${g},${b})`;
      pen.fillRect(label + j * cell, y, cell - (cell > 6 ? 1 : 0), height - (height > 6 ? 1 : 0));
      if (cell >= 46 && height >= 20) {
        const text = four.format(valueOf(cluster, j)), dark = 0.3 * r + 0.59 * g + 0.11 * b < 140;
        pen.globalAlpha = 1;
        write(pen, clipped(pen, text, cell - 4, 11), label + (j + 0.5) * cell, y + height / 2,
          {align: "center", size: 11, colour: alpha < 1 ? ink.quiet : dark ? "#fff" : "#14181e"});
        pen.globalAlpha = alpha;
      }
    }
    const most = Math.min(260, place.width - right - 56), length = Math.max(1, most * data.sizes[cluster] / largest);
    pen.fillStyle = ink.current;
    pen.fillRect(right + 6, y + 3, length, height - 7);
    write(pen, whole.format(data.sizes[cluster]), right + 10 + length, y + height / 2, {size: 11});
    pen.globalAlpha = 1;
    if (!mine) return;
    pen.strokeStyle = ink.ink;
    pen.lineWidth = 2;
    pen.strokeRect(label - 1, y - 1, right - label + 1, height + 1);
  }

  function draw(pen, width, height) {
    const first = Math.floor(box.scrollTop / place.height);
    inside(pen, {left: 0, top: place.head - 2, right: width, bottom: height}, () => {
      for (let i = first; i < K; i++) {
        const y = place.head + i * place.height - box.scrollTop;
        if (y > height) break;
        drawRow(pen, listed[i], y);
      }
    });
    drawHead(pen);
    drawOverview();
  }

  /** The whole map in a narrow strip beside the part that is seen, where not all of it is. */
  function drawOverview() {
    if (overview.hidden) return;
    const scale = devicePixelRatio || 1, width = 30, height = box.clientHeight, small = new OffscreenCanvas(columns, K);
    const image = new ImageData(columns, K);
    listed.forEach((cluster, i) => {
      for (let j = 0; j < columns; j++) image.data.set([...mixed(standard(cluster, j)), 255], 4 * (i * columns + j));
    });
    small.getContext("2d").putImageData(image, 0, 0);
    overview.width = width * scale;
    overview.height = height * scale;
    overview.style.height = `${height}px`;
    const pen = overview.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.drawImage(small, 0, 0, width, height);
    if (chosen !== null) {
      pen.fillStyle = ink.ink;
      pen.fillRect(0, height * listed.indexOf(chosen) / K - 1, width, 2);
    }
    pen.strokeStyle = ink.ink;
    pen.lineWidth = 2;
    const part = height / room.clientHeight;
    pen.strokeRect(1, box.scrollTop * part, width - 2, height * part);
  }

  const heat = new Picture("heat", {
    height(width) {
      place = {...layout(heat.pen, width), width};
      const all = Math.ceil(place.head + K * place.height + 2);
      room.style.height = `${all}px`;
      return Math.min(all, MOST);
    },
    draw,
    at(x, y) {
      const j = Math.floor((x - place.label) / place.cell), column = j >= 0 && j < columns ? j : null;
      if (y < place.head) return column === null || place.head < 12 ? null : {column};
      const i = Math.floor((y - place.head + box.scrollTop) / place.height);
      return i < K ? {cluster: listed[i], column} : null;
    },
    lines({cluster, column}) {
      if (cluster === undefined) return [data.names[column], "Click to order the clusters by this column."];
      const head = [`cluster ${cluster}: ${rowsOf(cluster)}, ${share(cluster)}`];
      if (column === null) return head;
      return [...head, `${data.names[column]}: ${shown(valueOf(cluster, column))}`,
        `${signed(standard(cluster, column))} standard deviations from the mean, ${shown(mean[column])}`];
    },
    act(what) {
      if (what === null) return;
      if (what.cluster !== undefined) return choose(what.cluster);
      order.value = what.column + 3;
      reorder();
    },
  });

  function reorder() {
    const by = Number(order.value);
    listed = by === 0 ? data.order : by === 1 ? bySize : by === 2 ? numbers :
      [...numbers].sort((a, b) => valueOf(b, by - 3) - valueOf(a, by - 3));
    box.scrollTop = 0;
    heat.paint();
  }

  order.addEventListener("change", reorder);
  box.addEventListener("scroll", () => heat.paint());
  for (const kind of ["pointerdown", "pointermove"])
    overview.addEventListener(kind, event => {
      if (event.buttons) box.scrollTop = event.offsetY / box.clientHeight * room.clientHeight - box.clientHeight / 2;
    });
  overview.hidden = K * rowHeight <= MOST - HEAD;
  box.style.maxHeight = `${MOST}px`;
}

// ---- scatter of the rows ----
function scatter() {
  const axes = axisNames.length, n = rows.labels.length, selects = [element("across"), element("up")];
  const spreadOut = i => i * 0.618033988749895 % 1; // a single column is drawn along a line
  for (const select of selects) select.append(...axisNames.map((name, j) => new Option(name.slice(0, 40), j)));
  selects[0].value = data.components.length ? columns : 0;
  selects[1].value = data.components.length ? columns + 1 : Math.min(1, axes - 1);
  if (axes === 1) selects[1].parentElement.hidden = true;
  let box = null, view = null, drag = null;
  const at = (values, i, j) => axes === 1 && j === 1 ? spreadOut(i) : values[i * axes + (axes === 1 ? 0 : Number(selects[j].value))];

  function draw(pen, width, height) {
    const ends = view || [0, 1].map(j => extent(Array.from({length: n}, (_, i) => at(rows.values, i, j))));
    const names = selects.map(select => axisNames[select.value]);
    if (axes === 1) names[1] = "";
    picture.box = box = {...frame(pen, width, height, ends[0], ends[1], names, axes === 1 ? {unmarked: 1} : {}), ends};
    const radius = n > 2000 ? 2 : n > 400 ? 2.8 : 4;
    const dots = mine => {
      for (let i = 0; i < n; i++) {
        if (chosen !== null && (rows.labels[i] === chosen) !== mine) continue;
        pen.fillStyle = chosen !== null && !mine ? ink.quiet : colours[rows.labels[i]];
        pen.globalAlpha = chosen !== null && !mine ? 0.22 : 0.8;
        pen.beginPath();
        pen.arc(box.px(at(rows.values, i, 0)), box.py(at(rows.values, i, 1)), radius, 0, 2 * Math.PI);
        pen.fill();
      }
      pen.globalAlpha = 1;
    };
    inside(pen, box, () => {
      if (chosen !== null) dots(false);
      dots(true);
      for (const cluster of K <= 60 ? numbers : chosen === null ? [] : [chosen]) cross(pen, cluster);
    });
    if (!drag || !drag.to) return;
    pen.strokeStyle = ink.ink;
    pen.strokeRect(drag.from[0], drag.from[1], drag.to[0] - drag.from[0], drag.to[1] - drag.from[1]);
  }

  function cross(pen, cluster) {
    if (axes === 1 || (chosen !== null && chosen !== cluster)) return;
    const x = box.px(at(centers, cluster, 0)), y = box.py(at(centers, cluster, 1));
    for (const [colour, width] of [[ink.paper, 5], [ink.ink, 2]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.beginPath();
      pen.moveTo(x - 5, y - 5);
      pen.lineTo(x + 5, y + 5);
      pen.moveTo(x + 5, y - 5);
      pen.lineTo(x - 5, y + 5);
      pen.stroke();
    }
  }

  const picture = new Picture("scatter", {
    height: width => Math.max(320, Math.min(560, width * 0.6)),
    draw,
    at(x, y) {
      let best = 14 ** 2, found = null;
      for (let i = 0; i < n; i++) {
        const far = (box.px(at(rows.values, i, 0)) - x) ** 2 + (box.py(at(rows.values, i, 1)) - y) ** 2;
        if (far < best) [best, found] = [far, i];
      }
      return found;
    },
    lines(i) {
      const seen = [...new Set([...selects.map(select => Number(select.value)), ...data.names.keys()])].slice(0, 8);
      return [`${data.id} ${rows.ids[i]}`, `cluster ${rows.labels[i]}`,
        ...seen.map(j => `${axisNames[j]}: ${shown(rows.values[i * axes + j])}`)];
    },
    act(i) {
      if (drag === null) choose(i === null ? chosen : rows.labels[i]);
      drag = null;
    },
  });

  const canvas = picture.canvas, whereIs = event => [event.offsetX, event.offsetY];
  canvas.addEventListener("pointerdown", event => { drag = event.pointerType === "mouse" ? {from: whereIs(event)} : null; });
  canvas.addEventListener("pointermove", event => {
    if (!drag || !event.buttons) return;
    const to = whereIs(event);
    if (drag.to || Math.hypot(to[0] - drag.from[0], to[1] - drag.from[1]) > 8) drag.to = to;
    picture.paint();
  });
  canvas.addEventListener("pointerup", () => {
    if (drag && drag.to) {
      const part = (j, low, high) => [drag.from[j], drag.to[j]].sort((a, b) => a - b).map(at =>
        box.ends[j][0] + (at - low) / (high - low) * (box.ends[j][1] - box.ends[j][0]));
      view = [part(0, box.left, box.right), part(1, box.bottom, box.top).sort((a, b) => a - b)];
      picture.paint();
    } else drag = null;
  });
  canvas.addEventListener("dblclick", () => { view = null; picture.paint(); });
  for (const select of selects) select.addEventListener("change", () => { view = null; picture.paint(); });
}

// ---- sizes, silhouettes ----
function sizes() {
  let box = null;
  const clusterAt = x => bySize[Math.floor((x - box.left) / (box.right - box.left) * K)];
  new Picture("sizes", {
    height: () => 300,
    draw(pen, width, height) {
      box = frame(pen, width, height, [0, K], [0, largest * 1.05], ["clusters, the largest first", "rows"]);
      const step = (box.right - box.left) / K;
      inside(pen, box, () => bySize.forEach((cluster, i) => {
        pen.globalAlpha = chosen === null || chosen === cluster ? 1 : 0.25;
        pen.fillStyle = colours[cluster];
        pen.fillRect(box.left + i * step, box.py(data.sizes[cluster]), Math.max(step * (step > 4 ? 0.86 : 1), 0.7), box.bottom);
        pen.globalAlpha = 1;
        if (chosen === cluster && step < 3) {
          pen.fillStyle = ink.ink;
          pen.fillRect(box.left + i * step - 1, box.top, 3, box.bottom);
        }
      }));
      dashed(pen, box, [[box.left, box.py(total / K)], [box.right, box.py(total / K)]]);
      write(pen, `even share: ${shown(total / K)}`, box.right - 4, box.py(total / K) - 9, {align: "right", colour: ink.ink});
    },
    at: (x, y) => x < box.left || x >= box.right || y < box.top || y > box.bottom ? null : clusterAt(x),
    lines: cluster => [`cluster ${cluster}`, `${rowsOf(cluster)}, ${share(cluster)}`],
    act: cluster => choose(cluster === null ? chosen : cluster),
  });
}

function silhouettePicture() {
  const present = [...new Set(silhouettes.labels)].sort((a, b) => a - b), n = silhouettes.labels.length;
  const few = present.length <= 60, middle = average(silhouettes.values);
  const low = Math.min(0, ...silhouettes.values), BINS = 40;
  const order = [...silhouettes.labels.keys()].sort((a, b) =>
    silhouettes.labels[a] - silhouettes.labels[b] || silhouettes.values[b] - silhouettes.values[a]);
  const bins = Array(BINS).fill(0), mineIn = Array(BINS).fill(0);
  const bin = value => Math.min(BINS - 1, Math.floor((value - low) / (1 - low) * BINS));
  for (const value of silhouettes.values) bins[bin(value)]++;
  let box = null, places = [];

  function knives(pen) {
    const step = (box.bottom - box.top) / (n * 1.15), gap = n * 0.15 / present.length * step;
    let y = box.top + gap / 2;
    places = [];
    present.forEach(cluster => {
      const begun = y;
      pen.globalAlpha = chosen === null || chosen === cluster ? 1 : 0.25;
      pen.fillStyle = colours[cluster];
      for (const i of order.filter(i => silhouettes.labels[i] === cluster)) {
        const to = box.px(silhouettes.values[i]), from = box.px(0);
        pen.fillRect(Math.min(from, to), y, Math.abs(to - from), step + 0.4);
        y += step;
      }
      pen.globalAlpha = 1;
      places.push([begun - gap / 2, y + gap / 2, cluster]);
      if (y - begun > 11 || present.length <= 20)
        write(pen, String(cluster), box.left - 5, (begun + y) / 2, {align: "right", size: present.length > 20 ? 10 : 12});
      y += gap;
    });
  }

  function histogram(pen) {
    mineIn.fill(0);
    silhouettes.values.forEach((value, i) => { if (silhouettes.labels[i] === chosen) mineIn[bin(value)]++; });
    for (const [counts, colour] of [[bins, ink.current], [mineIn, chosen === null ? ink.current : colours[chosen]]])
      counts.forEach((count, i) => {
        pen.fillStyle = colour;
        const [from, to] = [i, i + 1].map(at => box.px(low + at / BINS * (1 - low)));
        pen.fillRect(from, box.py(count), to - from - 1, box.bottom - box.py(count));
      });
  }

  new Picture("silhouettes", {
    height: () => 300,
    draw(pen, width, height) {
      if (few) {
        const room = widthOf(pen, String(present[present.length - 1]));
        box = frame(pen, width, height, [low < 0 ? low * 1.05 : 0, 1], [0, 1], ["silhouette", "cluster"], {unmarked: room});
      } else box = frame(pen, width, height, [low, 1], [0, Math.max(...bins) * 1.05], ["silhouette", "rows"]);
      (few ? knives : histogram)(pen);
      dashed(pen, box, [[box.px(middle), box.top], [box.px(middle), box.bottom]]);
      write(pen, `mean ${middle.toFixed(3)}`, box.right, box.top - 11, {align: "right", colour: ink.ink});
    },
    at(x, y) {
      if (!few) return x < box.left || x > box.right ? null : -1;
      const found = places.find(([from, to]) => y >= from && y < to);
      return found ? found[2] : null;
    },
    lines(cluster) {
      if (cluster < 0) return [`${n} rows of ${whole.format(rows.of)}`];
      const mine = silhouettesOf(cluster);
      return [`cluster ${cluster}`, `silhouettes of ${mine.length} rows, ${average(mine).toFixed(3)} on average`];
    },
    act: few ? cluster => choose(cluster === null ? chosen : cluster) : undefined,
  });
}

// ---- curves ----
function curvePicture(id, told) {
  const looks = {
    main: () => [ink.main, 2.2], dots: () => [ink.main, 2], current: () => [ink.current, 1.2], behind: () => [ink.line, 1],
  };
  const named = told.curves.filter(curve => curve.name), lead = named[named.length - 1];
  let box = null, hovered = null;

  function draw(pen, width, height) {
    const entries = [...named.map(curve => [curve.name, looks[curve.look]()[0], false]),
      ...(told.levels || []).map(level => [level.name, ink.ink, true])];
    let x = 4, line = 0;
    const put = entries.length < 2 && told.curves.length < 2 ? [] : entries.map(([name, colour, dotted]) => {
      const wide = widthOf(pen, name) + 34;
      if (x > 4 && x + wide > width) [x, line] = [4, line + 1];
      const place = {name, colour, dotted, x, y: 9 + 17 * line};
      x += wide;
      return place;
    });
    for (const {name, colour, dotted, x, y} of put) {
      if (dotted) dashed(pen, box, [[x, y], [x + 18, y]]);
      else {
        pen.fillStyle = colour;
        pen.fillRect(x, y - 1.5, 18, 3);
      }
      write(pen, name, x + 23, y);
    }
    const top = 24 + (put.length ? 17 * (line + 1) : 0), all = told.curves.filter(curve => curve.look !== "behind");
    const margin = told.low === undefined ? 0 : (told.high - told.low) * 0.06 || Math.abs(told.low) * 0.05 || 1;
    const y = told.low === undefined ? extent(all.flatMap(curve => curve.y)) : [told.low - margin, told.high + margin];
    box = frame(pen, width, height, extent(all.flatMap(curve => curve.x), 0.02), y, [told.x, told.y],
      {top, wholeX: !!told.whole});
    inside(pen, box, () => {
      for (const curve of told.curves) stroke(pen, curve, ...looks[curve.look]());
      for (const level of told.levels || []) dashed(pen, box, [[box.left, box.py(level.y)], [box.right, box.py(level.y)]]);
      for (const at of told.stems || []) dashed(pen, box, [[box.px(at), box.top], [box.px(at), box.bottom]]);
      if (hovered !== null) dashed(pen, box, [[box.px(lead.x[hovered]), box.top], [box.px(lead.x[hovered]), box.bottom]], ink.quiet);
    });
  }

  function stroke(pen, {x, y, look}, colour, width) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    let begun = false;
    x.forEach((at, i) => {
      if (y[i] === null) return;
      if (begun && told.step && look !== "current") pen.lineTo(box.px(at), box.py(y[i - 1]));
      begun ? pen.lineTo(box.px(at), box.py(y[i])) : pen.moveTo(box.px(at), box.py(y[i]));
      begun = true;
    });
    pen.stroke();
    if (look === "dots") x.forEach((at, i) => {
      if (y[i] === null) return;
      pen.beginPath();
      pen.arc(box.px(at), box.py(y[i]), (told.stems || []).includes(at) ? 6 : 3.5, 0, 2 * Math.PI);
      pen.fill();
    });
  }

  /** The value of a curve at some place: its last one before it. */
  const valueAt = (curve, at) => {
    const later = curve.x.findIndex(x => x > at), i = later < 0 ? curve.x.length - 1 : later - 1;
    return i < 0 ? null : curve.y[i];
  };

  const picture = new Picture(id, {
    height: () => 300,
    draw,
    at(x, y) {
      if (x < box.left - 6 || x > box.right + 6 || y < box.top || y > box.bottom) return null;
      let best = 0;
      lead.x.forEach((at, i) => { if (Math.abs(box.px(at) - x) < Math.abs(box.px(lead.x[best]) - x)) best = i; });
      return best;
    },
    lines: i => [`${told.x.split(";")[0]}: ${shown(lead.x[i])}`,
      ...named.map(curve => `${curve.name}: ${shown(valueAt(curve, lead.x[i]))}`)],
    hover(i) {
      if (i === hovered) return;
      hovered = i;
      picture.paint();
    },
  });
}

// ---- all of it ----
const drawn = {heat: heatMap, scatter, sizes, silhouettes: silhouettePicture};
for (const [id, make] of Object.entries(drawn)) if (element(id)) make();
for (const [id, told] of Object.entries(data.curves)) curvePicture(id, told);
for (const row of document.querySelectorAll("tr[data-cluster]")) row.addEventListener("click", () => choose(Number(row.dataset.cluster)));
addEventListener("keydown", event => { if (event.key === "Escape" && chosen !== null) choose(chosen); });
describe();
keepPainted();
