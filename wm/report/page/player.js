"use strict";
/* Players of episodes. Each is a section.player with its content as JSON. Nothing moves until a player is asked to. */

const SPEEDS = [.1, .25, .5, 1, 2, 4, 8];
const format = value => value === null ? "–" : String(Number(value.toPrecision(4))).replace("-", "\u2212");

/** Numbered pictures: all in one image in rows of `columns`, or one after another in `sizes` bytes each. */
class Reel {
  constructor({data, columns, sizes, width, height}) {
    Object.assign(this, {columns, width, height});
    if (columns) {
      this.sheet = Object.assign(new Image(), {src: `data:image/${data}`});
      return;
    }
    const text = atob(data), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    let from = 0;
    this.pieces = sizes.map(size => bytes.subarray(from, from += size));
  }

  /** A picture, and where it begins in it. */
  async at(number) {
    if (this.pieces) return [await createImageBitmap(new Blob([this.pieces[number]], {type: "image/webp"})), 0, 0];
    await this.sheet.decode();
    return [this.sheet, this.width * (number % this.columns), this.height * Math.floor(number / this.columns)];
  }
}

class Player {
  constructor(section) {
    this.section = section;
    this.content = JSON.parse(section.querySelector("script").textContent);
    const {first, every, frames, reels} = this.content;
    this.steps = Array.from({length: frames}, (_, k) => first + every * k);
    this.reels = reels.map(reel => new Reel(reel));
    this.number = 0;
    this.playing = false;
    this.buttons = Object.fromEntries([...section.querySelectorAll("button")].map(each => [each.dataset.does, each]));
    this.slider = section.querySelector("input");
    this.speed = section.querySelector("select");
    this.strip = section.querySelector(".strip");
    this.values = section.querySelector(".values");
    this.listen();
    this.ready = this.show(0);
  }

  listen() {
    const {section, slider, strip} = this;
    const does = {play: () => this.toggle(), back: () => this.move(-1), on: () => this.move(1)};
    for (const [name, button] of Object.entries(this.buttons)) button.addEventListener("click", does[name]);
    slider.addEventListener("input", () => this.show(Number(slider.value)));
    section.querySelector(".screens").addEventListener("click", () => this.toggle());
    const scrub = event => {
      const {left, width} = strip.getBoundingClientRect();
      this.show(Math.round((event.clientX - left) / width * (this.steps.length - 1)));
    };
    strip.addEventListener("pointerdown", event => { strip.setPointerCapture(event.pointerId); scrub(event); });
    strip.addEventListener("pointermove", event => { if (event.buttons) scrub(event); });
    section.addEventListener("keydown", event => {
      const own = event.target.closest("button, select"), last = this.steps.length - 1;
      const keys = {ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1), Home: () => this.show(0),
        End: () => this.show(last), "+": () => this.hurry(1), "-": () => this.hurry(-1)};
      if (!own) keys[" "] = () => this.toggle();
      if (!keys[event.key] || event.target === this.speed || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    new ResizeObserver(() => this.draw()).observe(strip);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  toggle() {
    if (this.playing) return this.pause();
    this.playing = true;
    this.section.classList.add("playing");
    this.buttons.play.textContent = "Pause";
    if (this.number === this.steps.length - 1) this.number = 0;
    let due = performance.now();
    const go = async now => {
      if (!this.playing) return;
      const pause = 1000 * this.content.every / (this.content.rate * Number(this.speed.value));
      const passed = Math.floor((now - due) / pause);
      if (passed > 0) {
        due += passed * pause;
        await this.show(this.number + passed);
        if (this.number === this.steps.length - 1) return this.pause();
      }
      requestAnimationFrame(go);
    };
    requestAnimationFrame(go);
  }

  pause() {
    this.playing = false;
    this.section.classList.remove("playing");
    this.buttons.play.textContent = "Play";
  }

  move(steps) {
    this.pause();
    this.show(this.number + steps);
  }

  hurry(change) {
    const next = SPEEDS.indexOf(Number(this.speed.value)) + change;
    if (SPEEDS[next]) this.speed.value = SPEEDS[next];
  }

  /** Draw a frame, its step and its values. */
  async show(wanted) {
    const number = this.number = Math.min(Math.max(wanted, 0), this.steps.length - 1);
    const pictures = await Promise.all(this.reels.map(reel => reel.at(number)));
    if (number !== this.number) return; // another one was asked for meanwhile
    for (const canvas of this.section.querySelectorAll("canvas[data-reel]")) {
      const reel = this.reels[canvas.dataset.reel], [image, x, y] = pictures[canvas.dataset.reel];
      const {width, height} = canvas, from = x + width * Number(canvas.dataset.part);
      canvas.getContext("2d").drawImage(image, from, y, width, height, 0, 0, width, height);
    }
    this.slider.value = number;
    this.draw();
  }

  /** The values of the step, and the strips with a line at it. */
  draw() {
    const {first, last, tracks} = this.content, step = this.steps[this.number], row = step - first;
    const style = getComputedStyle(this.section), colour = name => style.getPropertyValue(`--${name}`);
    this.section.querySelector("output").textContent = `step ${step} of ${last}`;
    const {strip} = this, scale = devicePixelRatio || 1, width = strip.clientWidth, height = strip.clientHeight;
    if (!width) return;
    strip.width = width * scale;
    strip.height = height * scale;
    const context = strip.getContext("2d");
    context.scale(scale, scale);
    const count = Math.max(this.steps.at(-1) - first, 1), x = k => k / count * (width - 1) + .5;
    let top = 0;
    const shown = [];
    for (const track of tracks) {
      this.drawTrack(context, track, colour, x, top, width);
      top += track.height;
      for (const {name, values, words, colour: key} of track.lines) {
        const value = values[row];
        if (value !== undefined) shown.push([name, words ? words[value] ?? value : format(value), key]);
      }
    }
    context.strokeStyle = colour("ink");
    context.strokeRect(x(row), -1, .01, top + 2);
    this.values.replaceChildren(...shown.map(([name, text, key]) => {
      const place = document.createElement("div"), term = document.createElement("dt");
      term.textContent = name;
      term.style.setProperty("--key", `var(--${key})`);
      place.append(term, Object.assign(document.createElement("dd"), {textContent: text}));
      return place;
    }));
  }

  /** One track: bars from zero, or a line in the range of its values; words are dashes in rows. */
  drawTrack(context, {kind, lines, height}, colour, x, top, width) {
    const low = values => values.reduce((least, value) => value === null ? least : Math.min(least, value), 0);
    const high = values => values.reduce((most, value) => value === null ? most : Math.max(most, value), 0);
    context.strokeStyle = colour("line");
    context.strokeRect(0, top + height - .5, width, .01);
    lines.forEach(({values, words, colour: key}, number) => {
      const own = kind === "lines" ? values.filter(value => value !== null) : [];
      const bottom = own.length ? Math.min(...own) : low(values), roof = own.length ? Math.max(...own) : high(values);
      const span = words ? Math.max(words.length - 1, 1) : roof - bottom || 1, base = words ? 0 : bottom;
      const y = value => top + 3 + (height - 6) * (1 - (value - base) / span);
      context.strokeStyle = context.fillStyle = colour(key);
      context.beginPath();
      let drawn = false;
      values.forEach((value, k) => {
        if (value === null) { drawn = false; return; }
        if (words) context.rect(x(k), y(value) - 1, Math.max(x(k + 1) - x(k), 1), 2);
        else if (kind === "bars" && number === 0) {
          if (value) context.rect(x(k), Math.min(y(value), y(0)), Math.max(x(1) - x(0), 1.5), Math.abs(y(value) - y(0)));
        } else if (drawn) context.lineTo(x(k), y(value));
        else context.moveTo(x(k), y(value));
        drawn = true;
      });
      if (words || (kind === "bars" && number === 0)) context.fill();
      else context.stroke();
    });
  }
}

const players = [...document.querySelectorAll(".player")].map(section => new Player(section));
const playersReady = Promise.all(players.map(player => player.ready));
