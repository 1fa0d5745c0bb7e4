"use strict";
/* V's decoder, M and C. Arithmetic and names are those of wm/models; a state is a list of arrays, as in Python. Random
   numbers come from outside: an object with uniform() and normal(). */

/** V's decoder: z -> pixels (side, side, channels) in [0, 1]. The array is overwritten by the next call. */
class Decoder {
  constructor({size, channels, layers, mean}) {
    Object.assign(this, {size, channels, mean});
    this.layers = chain(layers);
    this.pixels = new Float64Array(mean.length);
  }

  decode(z) {
    const logits = this.layers(z);
    for (let i = 0; i < logits.length; i++) this.pixels[i] = sigmoid(logits[i] + this.mean[i]);
    return this.pixels;
  }
}

/** The gates of an LSTM cell: (x, h, c) -> [h, c]. */
function lstmCell(gates, hidden) {
  const run = chain([gates]), inputs = new Float64Array(gates.inputs);
  return (x, h, c) => {
    inputs.set(x);
    inputs.set(h, x.length);
    const g = run(inputs), nextH = new Float64Array(hidden), nextC = new Float64Array(hidden);
    for (let i = 0; i < hidden; i++) {
      nextC[i] = sigmoid(g[hidden + i]) * c[i] + sigmoid(g[i]) * Math.tanh(g[2 * hidden + i]);
      nextH[i] = sigmoid(g[3 * hidden + i]) * Math.tanh(nextC[i]);
    }
    return [nextH, nextC];
  };
}

function concatenated(...parts) {
  const all = new Float64Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The paper's M (wm/models/mdnrnn/inference.py). Its state is [h, c]. */
class MdnRnn {
  constructor(description) {
    Object.assign(this, description);
    this.cell = lstmCell(description.gates, this.hidden);
    this.outputs = chain([description.heads]);
  }

  /** A step, and a sample of the next: {z, reward, end, state}. `end` is the probability that the episode ends. */
  advance(z, action, state, temperature, random, low, high) {
    const next = this.cell(concatenated(z, action), ...state), [h] = next;
    const out = this.outputs(h), {latent, mixtures} = this, component = new Array(latent);
    for (let i = 0; i < latent; i++) {
      const logits = Array.from({length: mixtures}, (_, k) => out[k * latent + i] / temperature);
      component[i] = drawn(softmax(logits), random.uniform());
    }
    const shown = new Float64Array(latent);
    for (let i = 0; i < latent; i++) {
      const k = component[i] * latent + i, mean = out[mixtures * latent + k];
      const sigma = Math.exp(clamp(out[2 * mixtures * latent + k], ...this.logSigma)) * Math.sqrt(temperature);
      shown[i] = clamp(z[i] + mean + sigma * random.normal(), low[i], high[i]);
    }
    const [reward, end] = out.subarray(3 * mixtures * latent);
    return {
      z: shown,
      reward: reward * this.rewardStd + this.rewardMean,
      end: sigmoid(end - Math.log(this.endWeight)),
      state: next,
    };
  }
}

/** The number whose cumulative probability is the first to reach `uniform`. */
function drawn(probabilities, uniform) {
  let cumulative = 0, index = 0;
  for (; index < probabilities.length - 1; index++) {
    cumulative += probabilities[index];
    if (cumulative >= uniform) break;
  }
  return index;
}

/** M trained on its own rollouts (wm/models/mdnrnn/rollout_inference.py). Its state: h, the cell c, the standardised
    latent of the step before, and whether there was one. */
class RolloutNetwork {
  constructor(description) {
    Object.assign(this, description);
    this.cell = description.gates && lstmCell(description.gates, this.hidden);
    for (const name of ["change", "reward", "end"]) this[name] = chain(description[name]);
  }

  standardise(z) {
    return z.map((value, i) => (value - this.zMean[i]) / this.zStd[i]);
  }

  /** Of a standardised z: the inputs of the step, what M remembers for the prediction, and the next state. */
  remember(z, action, [h, c, previous, started]) {
    const difference = z.map((value, i) => (value - previous[i]) / this.differenceStd[i] * started[0]);
    const inputs = concatenated(z, difference, action), one = new Float64Array([1]);
    if (!this.cell) return [inputs, h.subarray(this.latent), [inputs, c, z, one]];
    const [nextH, nextC] = this.cell(inputs, h, c);
    return [inputs, nextH, [nextH, nextC, z, one]];
  }

  /** A step, and a sample of the next: {z, reward, end, state}. `end` is the probability that the episode ends. */
  advance(z, action, state, temperature, random, low, high) {
    const [inputs, context, next] = this.remember(this.standardise(z), action, state);
    const change = this.change(concatenated(inputs, context)), shown = new Float64Array(this.latent);
    for (let i = 0; i < this.latent; i++) {
      const noise = this.noise * Math.sqrt(temperature) * random.normal() * this.residualStd[i];
      const standard = inputs[i] + change[i] * this.differenceStd[i] + noise;
      shown[i] = clamp(standard * this.zStd[i] + this.zMean[i], low[i], high[i]);
    }
    const moved = this.standardise(shown).map((value, i) => (value - inputs[i]) / this.differenceStd[i]);
    const transition = concatenated(inputs, moved);
    const end = sigmoid(this.end(transition)[0]);
    return {z: shown, reward: this.meanReward(transition, end), end, state: next};
  }

  /** The head has a distribution for a step after which the episode goes on, and one for a step that ends it. */
  meanReward(transition, end) {
    const logits = this.reward(transition), bins = this.bins.length;
    const goingOn = this.meanOfBins(logits.slice(0, bins)), last = this.meanOfBins(logits.slice(bins));
    return (goingOn + end * (last - goingOn)) * this.rewardUnit;
  }

  meanOfBins(logits) {
    const probabilities = softmax(logits), half = (this.bins.length - 1) / 2;
    let mean = 0;
    for (let k = 1; k <= half; k++) mean += (probabilities[half + k] - probabilities[half - k]) * this.bins[half + k];
    return mean;
  }
}

/** Discrete actions are numbers, those of a box lists. */
class ActionSpace {
  constructor({count, low, high}) {
    Object.assign(this, {count, low, high, width: count || low.length});
  }

  /** As M and C take it: one-hot, or the box scaled to [-1, 1]. */
  encode(action) {
    const encoded = new Float64Array(this.width);
    if (this.count) encoded[action] = 1;
    else encoded.forEach((_, i) => { encoded[i] = 2 * (action[i] - this.low[i]) / (this.high[i] - this.low[i] || 1) - 1; });
    return encoded;
  }
}

/** C (wm/models/controller.py): its inputs -> an action. */
class Controller {
  constructor(description, space) {
    Object.assign(this, description, {space});
    this.run = chain(description.layers);
  }

  features(z, zBefore, actionBefore, h) {
    const parts = [z];
    if (this.difference) parts.push(z.map((value, i) => value - zBefore[i]));
    if (this.previousAction) parts.push(actionBefore);
    return concatenated(...parts, h).subarray(0, this.inputs);
  }

  /** The outputs u. */
  evaluate(features) {
    return this.run(features);
  }

  /** The action of outputs u: drawn with `random`, the likeliest without. */
  action(u, random) {
    const {ordered} = this;
    switch (this.head) {
      case "argmax": return argmax(u);
      case "ordered": return ordered[(u[0] > this.threshold) - (u[0] < -this.threshold) + 1];
      case "categorical": {
        const choice = random ? drawn(softmax(u), random.uniform()) : argmax(u);
        return ordered ? ordered[choice] : choice;
      }
      case "tanh": return this.box(Array.from(u, Math.tanh));
      case "beta": return this.spread(this.points(u, random));
    }
    throw new Error(`unknown head ${this.head}`);
  }

  box(squashed) {
    const {low, high} = this.space, action = squashed.map((v, i) => low[i] + (v + 1) / 2 * (high[i] - low[i]));
    const oneSided = low.flatMap((value, i) => value === 0 ? [i] : []);
    for (const i of oneSided.slice(1)) action[i] = clamp(squashed[i], 0, 1) * high[i];
    return action;
  }

  /** Points of the unit cube: means of Beta distributions, or samples. */
  points(u, random) {
    const axes = u.length / 2;
    return Array.from({length: axes}, (_, i) => {
      const alpha = softplus(u[i]) + 1, beta = softplus(u[axes + i]) + 1;
      if (!random) return alpha / (alpha + beta);
      const one = gamma(alpha, random), other = gamma(beta, random);
      return clamp(one / (one + other), this.edge, 1 - this.edge);
    });
  }

  spread(points) {
    const {low, high} = this.space, scale = (v, i) => low[i] + v * (high[i] - low[i]);
    if (!this.opposed) return points.map(scale);
    const [first, second] = this.opposed, all = [...points.slice(0, second), 0, ...points.slice(second)];
    const action = all.map(scale), signed = 2 * all[first] - 1;
    action[first] = Math.max(signed, 0) * high[first];
    action[second] = Math.max(-signed, 0) * this.mostOpposed * high[second];
    return action;
  }
}

/** A sample of a Gamma distribution of this shape, which is at least 1 (Marsaglia and Tsang 2000). */
function gamma(shape, random) {
  const d = shape - 1 / 3, c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const x = random.normal(), v = (1 + c * x) ** 3;
    if (v > 0 && Math.log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * Math.log(v)) return d * v;
  }
}
