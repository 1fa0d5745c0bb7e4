"use strict";
/* Layers of V, M and C on flat arrays of numbers, channels last. No page and no random numbers: node runs this file too.

   Numbers are doubles: V8 computes single precision by converting to double and back, at half the speed. */

/** y (rows, outputs) = x (rows, inner) weight^T + bias, for weight (outputs, inner). Four rows and two outputs at a time:
    eight sums stay in registers, and each number that is read is used two or four times. */
function product(weight, bias, x, y, rows, inner, outputs) {
  const blocked = rows - rows % 4, even = outputs - outputs % 2;
  for (let row = 0; row < blocked; row += 4) {
    const x0 = row * inner, x1 = x0 + inner, x2 = x1 + inner, x3 = x2 + inner;
    for (let j = 0; j < even; j += 2) {
      let a0 = bias[j], a1 = a0, a2 = a0, a3 = a0, b0 = bias[j + 1], b1 = b0, b2 = b0, b3 = b0;
      const first = j * inner, second = first + inner;
      for (let i = 0; i < inner; i++) {
        const v = weight[first + i], w = weight[second + i];
        const p = x[x0 + i], q = x[x1 + i], r = x[x2 + i], s = x[x3 + i];
        a0 += v * p; a1 += v * q; a2 += v * r; a3 += v * s;
        b0 += w * p; b1 += w * q; b2 += w * r; b3 += w * s;
      }
      const at = row * outputs + j;
      y[at] = a0; y[at + outputs] = a1; y[at + 2 * outputs] = a2; y[at + 3 * outputs] = a3;
      y[at + 1] = b0; y[at + outputs + 1] = b1; y[at + 2 * outputs + 1] = b2; y[at + 3 * outputs + 1] = b3;
    }
    for (let k = row; k < row + 4; k++) rowProduct(weight, bias, x, y, k, inner, outputs, even);
  }
  for (let row = blocked; row < rows; row++) rowProduct(weight, bias, x, y, row, inner, outputs, 0);
}

/** One row of `product`, from output `first` on; four outputs at a time. */
function rowProduct(weight, bias, x, y, row, inner, outputs, first) {
  const from = row * inner, to = row * outputs;
  let j = first;
  for (; j + 4 <= outputs; j += 4) {
    let a = bias[j], b = bias[j + 1], c = bias[j + 2], d = bias[j + 3];
    const w0 = j * inner, w1 = w0 + inner, w2 = w1 + inner, w3 = w2 + inner;
    for (let i = 0; i < inner; i++) {
      const v = x[from + i];
      a += weight[w0 + i] * v; b += weight[w1 + i] * v; c += weight[w2 + i] * v; d += weight[w3 + i] * v;
    }
    y[to + j] = a; y[to + j + 1] = b; y[to + j + 2] = c; y[to + j + 3] = d;
  }
  for (; j < outputs; j++) {
    let sum = bias[j];
    for (let i = 0; i < inner; i++) sum += weight[j * inner + i] * x[from + i];
    y[to + j] = sum;
  }
}

const sigmoid = x => 1 / (1 + Math.exp(-x));
const silu = x => x * sigmoid(x);
const softplus = x => x > 20 ? x : Math.log1p(Math.exp(x));
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

/** In place. */
function relu(x) {
  for (let i = 0; i < x.length; i++) if (x[i] < 0) x[i] = 0;
  return x;
}

/** A layer is {op, weight, bias, ...} of wm/report/play/models.py; `build` gives it its buffers and a function x -> y. The
    y of a layer is overwritten when it runs again. */
const LAYERS = {
  /** x (inputs) -> (outputs) */
  linear({weight, bias, inputs, outputs}) {
    const y = new Float64Array(outputs);
    return x => (product(weight, bias, x, y, 1, inputs, outputs), y);
  },

  /** Transposed, stride 2: x (side, side, inputs) -> (2 side + kernel - 2 - 2 padding, the same, outputs). Each pixel's
      kernel is a product, and the products are added where they overlap. Weight (kernel, kernel, outputs, inputs). */
  deconvolution({weight, bias, inputs, outputs, side, kernel, padding}) {
    const width = kernel * kernel * outputs, wide = 2 * side + kernel - 2 - 2 * padding;
    const none = new Float64Array(width), parts = new Float64Array(side * side * width);
    const y = new Float64Array(wide * wide * outputs);
    return x => {
      product(weight, none, x, parts, side * side, inputs, width);
      for (let i = 0; i < y.length; i += outputs) y.set(bias, i);
      for (let pixel = 0, from = 0; pixel < side * side; pixel++) {
        const top = 2 * Math.floor(pixel / side) - padding, left = 2 * (pixel % side) - padding;
        for (let a = top; a < top + kernel; a++) {
          for (let b = left; b < left + kernel; b++, from += outputs) {
            if (a < 0 || a >= wide || b < 0 || b >= wide) continue;
            const to = (a * wide + b) * outputs;
            for (let k = 0; k < outputs; k++) y[to + k] += parts[from + k];
          }
        }
      }
      return y;
    };
  },

  /** Stride 1, the side stays: x (side, side, inputs) -> (side, side, outputs). Weight (outputs, kernel, kernel,
      inputs). */
  convolution({weight, bias, inputs, outputs, side, kernel, padding}) {
    const inner = kernel * kernel * inputs;
    const patches = new Float64Array(side * side * inner), y = new Float64Array(side * side * outputs);
    return x => {
      for (let pixel = 0, to = 0; pixel < side * side; pixel++) {
        const top = Math.floor(pixel / side) - padding, left = pixel % side - padding;
        for (let a = top; a < top + kernel; a++) {
          for (let b = left; b < left + kernel; b++, to += inputs) {
            if (a < 0 || a >= side || b < 0 || b >= side) continue; // stays zero
            const from = (a * side + b) * inputs;
            for (let k = 0; k < inputs; k++) patches[to + k] = x[from + k];
          }
        }
      }
      product(weight, bias, patches, y, side * side, inner, outputs);
      return y;
    };
  },

  /** Depth to space: x (side, side, block, block, channels) -> (side block, side block, channels). */
  shuffle({side, block, channels}) {
    const run = block * channels, y = new Float64Array(side * side * block * run);
    return x => {
      for (let row = 0, from = 0; row < side; row++) {
        for (let column = 0; column < side; column++) {
          for (let a = 0; a < block; a++, from += run) {
            const to = ((row * block + a) * side + column) * run;
            for (let k = 0; k < run; k++) y[to + k] = x[from + k];
          }
        }
      }
      return y;
    };
  },
};

/** x -> y through all layers, each with its activation, if it has one: relu, silu or tanh. */
function chain(layers) {
  const functions = {silu, tanh: Math.tanh};
  const steps = layers.map(layer => [LAYERS[layer.op](layer), layer.activation]);
  return x => {
    for (const [run, activation] of steps) {
      x = run(x);
      if (activation === "relu") relu(x);
      else if (activation) for (let i = 0; i < x.length; i++) x[i] = functions[activation](x[i]);
    }
    return x;
  };
}

function softmax(x) {
  const largest = Math.max(...x), e = Array.from(x, v => Math.exp(v - largest)), sum = e.reduce((a, b) => a + b, 0);
  return e.map(v => v / sum);
}

function argmax(x) {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}
