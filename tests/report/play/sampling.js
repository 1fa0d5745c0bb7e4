"use strict";
/* Actions that C draws: `cases` have its form, the space, outputs u and uniform numbers; of a box the mean of many. */

const fs = require("fs"), vm = require("vm"), [folder, file] = process.argv.slice(2);
for (const name of ["layers.js", "models.js", "dream.js"]) {
  vm.runInThisContext(fs.readFileSync(`${folder}/${name}`, "utf8"), {filename: name});
}
const make = vm.runInThisContext("(form, space) => new Controller({layers: [], ...form}, new ActionSpace(space))");
const chance = vm.runInThisContext("chance"), MANY = 4000;
const cases = JSON.parse(fs.readFileSync(file, "utf8")).map(({form, space, u, uniform}) => {
  const controller = make(form, space);
  if (uniform) return uniform.map(value => controller.action(u, {uniform: () => value}));
  const mean = u.slice(u.length / 2).map(() => 0);
  for (let k = 0; k < MANY; k++) controller.points(u, chance).forEach((v, i) => { mean[i] += v / MANY; });
  return mean;
});
console.log(JSON.stringify(cases));
