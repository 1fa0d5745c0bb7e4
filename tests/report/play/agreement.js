"use strict";
/* Plays the dream of `expected` and compares it with torch's. Run by node, and by a browser inside a page. */

/** Random numbers that torch has drawn. */
function queued({uniform, normal}) {
  const next = {uniform: 0, normal: 0};
  return {uniform: () => uniform[next.uniform++], normal: () => normal[next.normal++]};
}

/** The largest differences over all steps, and in how many the actions were equal. */
function agreement(world, {steps, uniform, normal, start}) {
  const dream = new Dream(world, world.starts[start]), random = queued({uniform, normal});
  const differences = {steps: 0, actions: 0, pixels: 0, z: 0, h: 0, u: 0, reward: 0, end: 0};
  const compare = (name, ours, theirs) => {
    if (theirs.length > ours.length) throw new Error(`${ours.length} numbers of ${name}; expected ${theirs.length}`);
    theirs.forEach((value, i) => { differences[name] = Math.max(differences[name], Math.abs(ours[i] - value)); });
  };
  for (const step of steps) {
    const {controller, space} = world;
    const features = controller.features(dream.z, dream.zBefore, dream.actionBefore, dream.state[0]);
    compare("u", controller.evaluate(features), step.u);
    const encoded = space.encode(dream.choose(null));
    differences.actions += step.action.every((value, i) => Math.abs(value - encoded[i]) < 1e-4);
    if (step.pixels) compare("pixels", world.decoder.decode(dream.z), step.pixels);
    dream.step(step.action, step.temperature, random);
    compare("z", dream.z, step.z);
    compare("h", dream.state[0], step.h);
    compare("reward", [dream.reward], [step.reward]);
    compare("end", [dream.end], [step.end]);
    if (dream.terminated !== step.terminated) throw new Error("another end");
    differences.steps++;
  }
  return differences;
}

if (typeof process !== "undefined") {
  const fs = require("fs"), vm = require("vm"), [folder, ...files] = process.argv.slice(2);
  for (const name of ["layers.js", "models.js", "dream.js"]) {
    vm.runInThisContext(fs.readFileSync(`${folder}/${name}`, "utf8"), {filename: name});
  }
  const script = "(world, weights) => readWeights(weights, world.numbers).then(numbers => openWorld(world, numbers))";
  const open = vm.runInThisContext(script);
  globalThis.Dream = vm.runInThisContext("Dream");
  (async () => {
    for (const file of files) { // a line of output each
      const {world, weights, expected} = JSON.parse(fs.readFileSync(file, "utf8"));
      console.log(JSON.stringify(agreement(await open(world, weights), expected)));
    }
  })();
}
