"use strict";
/* The order of episodes on the page of `wm view`. */

for (const button of document.querySelectorAll(".sort button")) {
  button.addEventListener("click", () => {
    const by = button.dataset.by, sign = by === "index" ? 1 : -1, main = document.querySelector("main");
    [...main.children].sort((a, b) => sign * (a.dataset[by] - b.dataset[by])).forEach(each => main.append(each));
  });
}
