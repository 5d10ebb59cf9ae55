// The mismatch on the landing page: show the answer for where X and Y are, and say it.
"use strict";

const board = document.querySelector(".board");
const answers = [...document.querySelectorAll(".answer")];

function show(told) {
  const { x, y } = Object.fromEntries(new FormData(board));
  for (const answer of answers) {
    const chosen = answer.dataset.x === x && answer.dataset.y === y;
    answer.classList.toggle("shown", chosen);
    if (chosen) told.textContent = answer.querySelector("samp").textContent;
  }
}

const told = document.getElementById("told");
board.addEventListener("change", () => show(told));
show(document.createElement("p")); // after going back in history: shown, not spoken
