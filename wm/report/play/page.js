"use strict";
/* The page of a game: what is seen, pressed and moved. The dream itself is in dream.js. */

const byId = id => document.getElementById(id);
/** A number of so many decimals; what is rounded to zero has no sign. */
const decimal = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, "");
const TRACE = 240; // steps of the chart
const HANDS_OFF = 700; // ms after the last key until C drives again
const REST = 1400; // ms that the last picture of a dream is shown
const WHO = {c: "C, until you press a key", you: "you alone", recording: "the recorded actions"};

/** What a person holds: keys and buttons, in the order in which they were pressed. */
class Hands {
  constructor({buttons, idle}, space) {
    Object.assign(this, {buttons, idle, space, held: [], until: 0});
  }

  /** A key, a finger, the mouse or the focus, `by`, presses a button; two of them may hold the same one. */
  press(button, by) {
    if (!this.held.some(other => other.by === by)) this.held.push({button, by});
    this.show();
  }

  release(by) {
    const kept = this.held.filter(other => other.by !== by);
    if (kept.length < this.held.length) this.until = performance.now() + HANDS_OFF;
    this.held = kept;
    this.show();
  }

  get active() {
    return this.held.length > 0 || performance.now() < this.until;
  }

  /** The action of this step. */
  action(step) {
    const idle = this.idle[step % this.idle.length];
    if (this.space.count) return this.held.length ? this.buttons[this.held.at(-1).button].action : idle;
    const action = [...idle];
    for (const {button} of this.held) {
      for (const [dimension, value] of Object.entries(this.buttons[button].values)) action[dimension] = value;
    }
    return action;
  }

  ofKey(key) {
    return this.buttons.findIndex(button => button.keys.some(other => other.toLowerCase() === key.toLowerCase()));
  }

  show() {
    const buttons = this.held.map(({button}) => button);
    [...byId("actions").children].forEach((element, i) => element.classList.toggle("held", buttons.includes(i)));
  }

  /** Buttons for a finger, a mouse, or Enter and the space bar. */
  build() {
    this.buttons.forEach((button, i) => {
      const element = document.createElement("button");
      const symbol = Object.assign(document.createElement("span"), {className: "symbol", textContent: button.symbol});
      symbol.setAttribute("aria-hidden", "true");
      element.append(symbol, button.label);
      element.addEventListener("pointerdown", event => {
        element.setPointerCapture(event.pointerId);
        this.press(i, `pointer ${event.pointerId}`);
      });
      for (const end of ["pointerup", "pointercancel"]) {
        element.addEventListener(end, event => this.release(`pointer ${event.pointerId}`));
      }
      element.addEventListener("keydown", event => {
        if (event.key === "Enter" || event.key === " ") this.press(i, "focus");
      });
      element.addEventListener("keyup", event => {
        if (event.key === "Enter" || event.key === " ") this.release("focus");
      });
      element.addEventListener("blur", () => this.release("focus"));
      element.addEventListener("contextmenu", event => event.preventDefault());
      byId("actions").append(element);
    });
  }
}

/** Draws pixels (side, side, channels) in [0, 1] on a canvas of that size. */
class Screen {
  constructor(id, size) {
    const canvas = byId(id);
    canvas.width = canvas.height = size;
    this.context = canvas.getContext("2d");
    this.image = this.context.createImageData(size, size);
    this.size = size;
  }

  draw(pixels, channels) {
    const {data} = this.image, green = channels > 2 ? 1 : 0, blue = channels > 2 ? 2 : 0;
    for (let i = 0, from = 0; i < data.length; i += 4, from += channels) {
      data[i] = 255 * pixels[from] + .5;
      data[i + 1] = 255 * pixels[from + green] + .5;
      data[i + 2] = 255 * pixels[from + blue] + .5;
      data[i + 3] = 255;
    }
    this.context.putImageData(this.image, 0, 0);
  }

  clear() {
    this.context.clearRect(0, 0, this.size, this.size);
  }

  /** A frame of a sheet, once it is loaded. */
  drawFrame(sheet, number) {
    const {size} = this;
    sheet.decode().then(() => this.context.drawImage(sheet, number * size, 0, size, size, 0, 0, size, size));
  }
}

/** The reward and the probability of the end over the last steps. */
class Trace {
  constructor() {
    this.canvas = byId("trace");
    this.points = [];
  }

  add(reward, end) {
    this.points.push([reward, end]);
    if (this.points.length > TRACE) this.points.shift();
  }

  draw() {
    const {canvas} = this, scale = window.devicePixelRatio || 1, style = getComputedStyle(document.body);
    const wide = canvas.clientWidth, tall = canvas.clientHeight, context = canvas.getContext("2d");
    if (canvas.width !== Math.round(wide * scale)) canvas.width = Math.round(wide * scale);
    if (canvas.height !== Math.round(tall * scale)) canvas.height = Math.round(tall * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, wide, tall);
    const rewards = this.points.map(point => point[0]), top = Math.max(...rewards, 0), bottom = Math.min(...rewards, 0);
    const span = top - bottom || 1, y = (value, low, high) => tall - 4 - (tall - 8) * (value - low) / (high - low);
    byId("span").textContent = `from ${decimal(bottom, 2)} to ${decimal(top, 2)}`;
    const line = (colour, height) => {
      context.strokeStyle = style.getPropertyValue(colour);
      context.lineWidth = 1.5;
      context.beginPath();
      this.points.forEach((point, i) => context.lineTo(wide * i / (TRACE - 1), height(point)));
      context.stroke();
    };
    context.fillStyle = style.getPropertyValue("--line");
    context.fillRect(0, y(0, bottom, bottom + span), wide, 1);
    line("--k0", point => y(point[0], bottom, bottom + span));
    line("--k1", point => y(point[1], 0, 1));
  }
}

class Player {
  constructor(world) {
    const {size} = world.decoder;
    Object.assign(this, {world, playing: false, last: 0, rest: 0, number: 0});
    this.hands = new Hands(world.controls, world.space);
    this.screens = Object.fromEntries(["dream", "real", "reconstruction"].map(id => [id, new Screen(id, size)]));
    this.trace = new Trace();
    this.sheets = world.starts.map(start => Object.assign(new Image(), {src: start.frames}));
    this.build();
    this.begin(0);
  }

  get start() {
    return this.world.starts[this.number];
  }

  /** A dream from the start of this number. */
  begin(number) {
    this.number = number;
    this.dream = new Dream(this.world, this.start);
    this.rest = 0;
    this.trace.points = [];
    byId("start").value = number;
    byId("over").hidden = true;
    this.draw();
  }

  another() {
    this.begin((this.number + 1) % this.world.starts.length);
  }

  /** Who acts in the next step: c, you or recording. */
  get driver() {
    const who = byId("who").value;
    return who === "c" && this.hands.active ? "you" : who;
  }

  action() {
    const {dream, world, start} = this;
    switch (this.driver) {
      case "recording": return start.action(dream.steps);
      case "you": return world.space.encode(this.hands.action(dream.steps));
      default: return world.space.encode(dream.choose(chance));
    }
  }

  /** One step of the dream; the page is drawn after it. */
  step() {
    const {dream} = this;
    if (dream.ended || this.recordingOver()) return;
    dream.step(this.action(), Number(byId("temperature").value), chance);
    this.trace.add(dream.reward, dream.end);
    if (dream.ended || this.recordingOver()) this.finish();
    this.draw();
  }

  recordingOver() {
    return byId("who").value === "recording" && this.dream.steps >= this.start.length - 1;
  }

  finish() {
    const {dream} = this, total = `after ${dream.steps} steps, return ${decimal(dream.total, 1)}`;
    const how = dream.terminated ? "M ended the episode" : dream.truncated ? "Time is over" : "The recording is over";
    byId("over").textContent = byId("said").textContent = `${how} ${total}`;
    byId("over").hidden = false;
    this.rest = performance.now() + REST;
  }

  draw() {
    const {dream, start, world} = this, {channels} = world.decoder, step = dream.steps;
    this.screens.dream.draw(world.decoder.decode(dream.z), channels);
    if (step < start.length) {
      this.screens.reconstruction.draw(world.decoder.decode(start.latent(step)), channels);
      this.screens.real.drawFrame(this.sheets[this.number], step);
    }
    byId("step").textContent = step;
    byId("reward").textContent = decimal(dream.reward, 2);
    byId("return").textContent = decimal(dream.total, 1);
    byId("end").textContent = `${(100 * dream.end).toFixed(1)} %`;
    byId("recording").textContent = step < start.length ? `${step} of ${start.length - 1}` : "over";
    const names = {c: "C drives", you: "you drive", recording: "the recorded actions drive"};
    byId("driver").textContent = names[this.driver];
    this.trace.draw();
    if (byId("latents").open) this.showLatents();
  }

  play(playing) {
    this.playing = playing;
    byId("play").textContent = playing ? "Pause" : "Play";
  }

  /** Called for every picture of the browser; `speed` of them a second advance the dream. */
  frame(now) {
    requestAnimationFrame(time => this.frame(time));
    const interval = 1000 / Number(byId("speed").value);
    if (!this.playing || now - this.last < interval - 2) return;
    this.last = Math.max(this.last + interval, now - interval);
    if (!this.rest) this.step();
    else if (performance.now() > this.rest) this.another();
  }

  build() {
    const {world} = this, option = (value, text) => Object.assign(document.createElement("option"), {value, text});
    const who = Object.entries(WHO).filter(([name]) => name !== "c" || world.controller);
    byId("who").append(...who.map(([name, text]) => option(name, text)));
    byId("who").addEventListener("change", () => this.begin(this.number));
    byId("start").append(...world.starts.map((start, i) => option(i, `episode ${start.episode}, step ${start.step}`)));
    byId("start").addEventListener("change", event => this.begin(Number(event.target.value)));
    byId("invitation").textContent = world.controller
      ? "C drives until you press a key, and again after." : "There is no C in this run: you drive.";
    for (const [id, value] of [["temperature", world.temperature], ["speed", world.stepsPerSecond]]) {
      const input = byId(id), show = () => { input.nextElementSibling.value = input.value; };
      input.value = value;
      input.addEventListener("input", show);
      show();
    }
    byId("play").addEventListener("click", () => this.play(!this.playing));
    byId("once").addEventListener("click", () => this.once());
    byId("again").addEventListener("click", () => this.begin(this.number));
    byId("another").addEventListener("click", () => this.another());
    byId("latents").addEventListener("toggle", () => this.showLatents());
    this.hands.build();
    this.listen();
    this.giveKeysBack();
    this.tellKeys();
  }

  /** A single step; from the end of a dream, another one. */
  once() {
    this.play(false);
    if (this.rest) this.another();
    else this.step();
  }

  listen() {
    const {hands} = this, commands = {p: "play", ".": "once", r: "again", n: "another"};
    addEventListener("keydown", event => {
      const busy = event.target.closest("input, select, summary");
      if (busy || event.ctrlKey || event.metaKey || event.altKey) return;
      const button = hands.ofKey(event.key);
      if (button >= 0 && !(event.key === " " && event.target.closest("button"))) {
        event.preventDefault();
        hands.press(button, event.key.toLowerCase());
      } else if (commands[event.key.toLowerCase()] && !event.repeat) {
        byId(commands[event.key.toLowerCase()]).click();
      }
    });
    addEventListener("keyup", event => hands.release(event.key.toLowerCase()));
    addEventListener("blur", () => hands.held.forEach(({by}) => hands.release(by)));
  }

  /** After a finger or the mouse has used a part of the page, arrows and the space bar are the game's again. */
  giveKeysBack() {
    const used = {click: "button, summary, input", change: "input, select"}; // a select is open after its click
    let pointed = false;
    addEventListener("pointerdown", () => { pointed = true; }, true);
    addEventListener("keydown", () => { pointed = false; }, true);
    for (const [kind, parts] of Object.entries(used)) {
      addEventListener(kind, event => { if (pointed) event.target.closest(parts)?.blur(); });
    }
  }

  tellKeys() {
    const names = {" ": "space", ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓"};
    const rows = this.world.controls.buttons.map(button => [button.keys, button.label]);
    rows.push([["p"], "play or pause"], [["."], "one step"], [["r"], "the same start again"], [["n"], "another start"]);
    for (const [keys, label] of rows.filter(([keys]) => keys.length)) {
      const row = byId("keys").insertRow(), cell = row.insertCell();
      for (const key of keys) {
        cell.append(Object.assign(document.createElement("kbd"), {textContent: names[key] || key}), " ");
      }
      row.insertCell().textContent = label;
    }
  }

  /** A slider for every latent, made when they are first opened. */
  showLatents() {
    const {dream, world} = this, sliders = byId("sliders");
    if (!sliders.children.length) {
      dream.z.forEach((_, i) => {
        const label = document.createElement("label"), input = document.createElement("input");
        Object.assign(input, {type: "range", min: world.low[i], max: world.high[i], step: "any"});
        input.setAttribute("aria-label", `latent ${i}`);
        input.addEventListener("input", () => this.setLatent(i, Number(input.value)));
        label.append(Object.assign(document.createElement("span"), {textContent: i}), input);
        sliders.append(label);
      });
    }
    [...sliders.children].forEach((label, i) => { label.lastChild.value = dream.z[i]; });
  }

  setLatent(number, value) {
    this.play(false);
    this.dream.z = this.dream.z.slice();
    this.dream.z[number] = value;
    this.draw();
  }
}

/** The page's player, once its weights are unpacked. */
const ready = (async () => {
  const description = JSON.parse(byId("world").textContent);
  const weights = await readWeights(byId("weights").textContent, description.numbers);
  const player = new Player(openWorld(description, weights));
  player.play(!matchMedia("(prefers-reduced-motion: reduce)").matches);
  requestAnimationFrame(now => player.frame(now));
  return player;
})();
ready.catch(error => {
  byId("driver").textContent = `This page cannot be played here: ${error.message}`;
});
