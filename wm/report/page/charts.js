"use strict";
/* Charts: the values under the pointer, or at the place that arrow keys move; entries of a legend hide their series. */

const SVG = "http://www.w3.org/2000/svg";
const shorten = value => {
  const size = Math.abs(value);
  const text = size && (size < 1e-3 || size >= 1e7) ? value.toExponential(2)
    : size >= 100 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)));
  return text.replace("-", "\u2212");
};

class Chart {
  constructor(svg) {
    this.svg = svg;
    Object.assign(this, JSON.parse(svg.dataset.plot));
    this.hidden = new Set();
    this.note = Object.assign(document.createElement("p"), {className: "note", hidden: true});
    this.note.setAttribute("role", "status");
    svg.parentNode.style.position = "relative";
    svg.after(this.note);
    this.marks = svg.appendChild(document.createElementNS(SVG, "g"));
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", event => this.point(event));
    svg.addEventListener("pointerdown", event => this.point(event));
    svg.addEventListener("pointerleave", () => this.clear());
    svg.addEventListener("blur", () => this.clear());
    svg.addEventListener("keydown", event => this.key(event));
    this.series.forEach((_, number) => this.listen(number));
  }

  listen(number) {
    const entry = [...this.svg.querySelectorAll(`.n${number}`)], toggle = () => {
      const off = !this.hidden.has(number);
      this.hidden[off ? "add" : "delete"](number);
      this.svg.querySelectorAll(`.s${number}`).forEach(each => { each.style.display = off ? "none" : ""; });
      for (const each of entry) {
        each.style.opacity = off ? .4 : "";
        each.setAttribute("aria-pressed", !off);
      }
      this.clear();
    };
    for (const each of entry) {
      each.style.cursor = "pointer";
      each.style.pointerEvents = "bounding-box";
      each.addEventListener("click", toggle);
    }
    const label = entry.at(-1);
    if (!label) return;
    label.tabIndex = 0;
    label.setAttribute("role", "button");
    label.setAttribute("aria-pressed", true);
    label.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      toggle();
    });
  }

  /** A value's place on an axis {from, to, start, end, log}. */
  static place(value, {from, to, start, end, log}) {
    const share = log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
    return start + share * (end - start);
  }

  get shown() {
    return this.series.map((series, number) => ({...series, number})).filter(({number}) => !this.hidden.has(number));
  }

  point(event) {
    const matrix = this.svg.getScreenCTM();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    if (at.x < this.x.start - 6 || at.x > this.x.end + 6 || at.y < this.y.end - 6 || at.y > this.y.start + 6) {
      return this.clear();
    }
    this.show(at);
  }

  key(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || event.target !== this.svg) return;
    event.preventDefault();
    const places = [...new Set(this.shown.flatMap(({x}) => x))].sort((a, b) => a - b);
    const now = this.at === undefined ? (step > 0 ? -1 : places.length) : places.indexOf(this.at);
    const next = places[Math.min(Math.max(now + step, 0), places.length - 1)];
    if (next !== undefined) this.show({x: Chart.place(next, this.x), y: this.y.end});
  }

  /** Mark what is nearest to a place: of curves the points at one x, of scattered points one. */
  show(at) {
    const near = this.shown.flatMap(series => series.x.map((x, k) => {
      const mark = {series, k, x: Chart.place(x, this.x), y: Chart.place(series.y[k], this.y)};
      mark.far = Math.abs(mark.x - at.x) + (series.loose ? Math.abs(mark.y - at.y) : 0);
      return mark;
    }));
    if (!near.length) return;
    const best = near.reduce((one, other) => other.far < one.far ? other : one);
    const marks = best.series.loose ? [best] : this.shown.filter(({loose}) => !loose).flatMap(series =>
      near.filter(mark => mark.series.number === series.number && Math.abs(mark.x - best.x) < .5).slice(0, 1));
    this.at = best.series.x[best.k];
    this.marks.replaceChildren(...marks.filter(({y}) => y >= this.y.end - 1 && y <= this.y.start + 1).map(({x, y, series}) => {
      const circle = document.createElementNS(SVG, "circle");
      for (const [name, value] of Object.entries({cx: x, cy: y, r: 3.5})) circle.setAttribute(name, value);
      circle.style.fill = `var(--k${series.number % 5})`;
      return circle;
    }));
    const lines = marks.map(({series, k}) => {
      const band = series.low ? ` (${shorten(series.low[k])} to ${shorten(series.high[k])})` : "";
      return `${series.name || this.yLabel}: ${shorten(series.y[k])}${band}`;
    });
    this.note.textContent = [`${this.xLabel} ${shorten(this.at)}`, ...lines].join("\n");
    this.note.hidden = false;
    const share = best.x / this.svg.viewBox.baseVal.width;
    this.note.style.left = share < .5 ? `${100 * share + 3}%` : "";
    this.note.style.right = share < .5 ? "" : `${100 * (1 - share) + 3}%`;
  }

  clear() {
    this.at = undefined;
    this.marks.replaceChildren();
    this.note.hidden = true;
  }
}

const charts = [...document.querySelectorAll("svg[data-plot]")].map(svg => new Chart(svg));
