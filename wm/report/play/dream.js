"use strict";
/* The dream: M as an environment, with the rules of wm/dreams/env.py. Nothing here knows a page: node runs it too. */

/** The numbers of a page (wm/report/play/weights.py): base64 of deflated float32, the highest bytes of all first. */
async function readWeights(text, count) {
  const deflated = Uint8Array.from(atob(text.trim()), character => character.charCodeAt(0));
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  if (planes.length !== count * 4) throw new Error(`${planes.length} bytes of weights; expected ${count * 4}`);
  const bits = new Uint32Array(count);
  for (let plane = 0; plane < 4; plane++) {
    const shift = 24 - 8 * plane, from = plane * count;
    for (let i = 0; i < count; i++) bits[i] |= planes[from + i] << shift;
  }
  return Float64Array.from(new Float32Array(bits.buffer));
}

/** V, M, C, actions and starts from a page's description, whose {at, size} are numbers among the weights. */
function openWorld(description, weights) {
  const resolve = value => {
    if (Array.isArray(value)) return value.map(resolve);
    if (value === null || typeof value !== "object") return value;
    if ("at" in value) return weights.subarray(value.at, value.at + value.size);
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, resolve(part)]));
  };
  const {vae, mdnrnn, controller, space, starts, ...others} = resolve(description);
  const actions = new ActionSpace(space);
  return {
    ...others,
    space: actions,
    decoder: new Decoder(vae),
    mdnrnn: mdnrnn.network === "paper" ? new MdnRnn(mdnrnn) : new RolloutNetwork(mdnrnn),
    controller: controller && new Controller(controller, actions),
    starts: starts.map(start => new Start(start, actions.width)),
  };
}

/** A real latent with M's state there, and what was recorded from it on: `length` frames, the latents of all of them, and
    an encoded action and a reward for all but the last. */
class Start {
  constructor({z, state, zBefore, actionBefore, latents, actions, rewards, ...others}, width) {
    Object.assign(this, {z, state, zBefore, actionBefore, latents, actions, rewards, width}, others);
    this.length = rewards.length + 1;
  }

  latent(step) {
    return this.latents.subarray(step * this.z.length, (step + 1) * this.z.length);
  }

  action(step) {
    return this.actions.subarray(step * this.width, (step + 1) * this.width);
  }
}

/** One dream. `step` advances it until it has ended: M decides, or `maxSteps` are over. */
class Dream {
  constructor(world, start) {
    const {z, state, zBefore, actionBefore} = start;
    Object.assign(this, {world, z, state, zBefore, actionBefore});
    this.steps = this.total = this.reward = this.end = 0;
    this.terminated = this.truncated = false;
  }

  get ended() {
    return this.terminated || this.truncated;
  }

  /** C's action. Where the player serves, C begins with that. */
  choose(random) {
    const {controller} = this.world;
    if (controller.serve !== null && this.steps < controller.serveSteps) return controller.serve;
    const features = controller.features(this.z, this.zBefore, this.actionBefore, this.state[0]);
    return controller.action(controller.evaluate(features), controller.sampled ? random : null);
  }

  /** Take an encoded action. Afterwards `reward` is the one M expects, `end` the probability of an end, and `total` the
      return so far. */
  step(action, temperature, random) {
    const {mdnrnn, low, high, maxSteps} = this.world;
    const sample = mdnrnn.advance(this.z, action, this.state, temperature, random, low, high);
    this.zBefore = this.z;
    this.actionBefore = action;
    this.z = sample.z;
    this.state = sample.state;
    this.reward = sample.reward;
    this.end = sample.end;
    this.total += sample.reward;
    this.steps++;
    this.terminated = random.uniform() < sample.end;
    this.truncated = !this.terminated && this.steps >= maxSteps;
  }
}

/** Random numbers of the browser. */
const chance = {
  uniform: () => Math.random(),
  normal: () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random()),
};
