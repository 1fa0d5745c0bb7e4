"use strict";
/* The page of a report: contents, pictures that open large, animations that wait, and a page that renews itself. */

const contents = document.querySelector(".contents");
if (contents) contents.open = matchMedia("(min-width: 75rem)").matches;

const dialog = document.createElement("dialog");
dialog.append(document.createElement("img"));
dialog.addEventListener("click", () => dialog.close());
document.body.append(dialog);

/** Open a picture in its own size, at least as wide as the window. */
const enlarge = ({src, alt}) => {
  Object.assign(dialog.firstChild, {src, alt});
  dialog.showModal();
  dialog.scrollTo(0, 0);
};

const byKey = action => event => {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  action();
};

for (const image of document.querySelectorAll("figure.still > img")) {
  Object.assign(image, {tabIndex: 0, title: "enlarge"});
  image.setAttribute("role", "button");
  image.addEventListener("click", () => enlarge(image));
  image.addEventListener("keydown", byKey(() => enlarge(image)));
}

/** An animation shows its first picture, and moves between two presses of its button. */
for (const figure of document.querySelectorAll("figure.moving")) {
  const image = figure.querySelector("img"), still = document.createElement("canvas");
  const button = Object.assign(document.createElement("button"), {textContent: "Play"});
  const source = image.src;
  still.setAttribute("role", "img");
  still.setAttribute("aria-label", image.alt);
  image.hidden = true;
  image.before(still);
  image.after(button);
  const toggle = () => {
    const moves = image.hidden;
    if (moves) image.src = source;
    image.hidden = !moves;
    still.hidden = moves;
    button.textContent = moves ? "Stop" : "Play";
    figure.classList.toggle("playing", moves);
  };
  for (const each of [image, still, button]) each.addEventListener("click", toggle);
  image.decode().then(() => {
    Object.assign(still, {width: image.naturalWidth, height: image.naturalHeight});
    still.getContext("2d").drawImage(image, 0, 0);
  }, () => { still.hidden = button.hidden = true; image.hidden = false; });
}

const refresh = Number(document.body.dataset.refresh);
if (refresh) {
  setInterval(() => {
    if (!document.querySelector(".playing, dialog[open], .note:not([hidden])")) location.reload();
  }, 1000 * refresh);
}
