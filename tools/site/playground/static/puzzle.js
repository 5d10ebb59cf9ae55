// The page with the puzzle.
"use strict";

const results = document.getElementById("results");
const problem = document.getElementById("problem");
const said = document.getElementById("said");
const KEPT = "d2l-gpu-puzzle";

let ask = null;
let badLink = "";
let level = form.elements.level.value;

// ------------------------------------------------------------------ the best so far

// Browsers may refuse to keep anything, or somebody may have changed what's kept.
function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function keep(number, found) {
  const before = kept();
  if (found.share <= (before[number]?.share ?? 0)) return;
  try {
    localStorage.setItem(KEPT, JSON.stringify({ ...before, [number]: found }));
  } catch {
    // Then the best plan is forgotten with the page.
  }
}

function showBest() {
  const all = kept();
  for (const place of document.querySelectorAll("[data-best]")) {
    const share = all[place.dataset.best]?.percent;
    place.textContent = share ? say("best", { share }) : words.best_none;
  }
  document.getElementById("best").hidden = !all[level]?.plan;
}

// ------------------------------------------------------------------ the plan

function read() {
  const { level: _, ...plan } = readForm();
  return plan;
}

/** Show how many GPUs and sequences the plan has, and the level wants. */
function count() {
  const plan = readAll();
  const its = config.levels[level];
  for (const [name, factors, all] of [
    ["gpus_used", ["pipeline", "tensor", "shards", "replicas"], its.gpus],
    ["sequences_used", ["shards", "replicas", "microbatches", "sequences"], its.batch],
  ]) {
    const n = factors.reduce((product, factor) => product * plan[factor], 1);
    const product = factors.map((factor) => plan[factor]).join(" × ");
    const place = document.getElementById(name);
    place.textContent = say(name, {
      product, n: n.toLocaleString("en"), all: all.toLocaleString("en"),
    });
    place.classList.toggle("bad", n !== all);
  }
}

function choosePlan(plan) {
  Object.entries({ ...config.plan, ...plan }).forEach(([key, value]) => choose(key, value));
  readForm();
  count();
}

async function score() {
  const plan = read();
  const number = level;
  toAddress({ level: number, ...plan });
  if (!ask) return;
  results.setAttribute("aria-busy", "true");
  const answer = await ask({ ask: "score", level: number, plan });
  results.removeAttribute("aria-busy");
  if (number !== level) return;
  const sentences = [badLink, answer.problem, answer.problem && words.kept_score];
  tell(problem, sentences.filter(Boolean).join(" "));
  results.classList.toggle("stale", Boolean(answer.problem));
  if (answer.problem) return;
  showParts(answer.parts);
  said.textContent = answer.say;
  if (!starts(number, plan)) {
    keep(number, { share: answer.share, percent: answer.percent, plan });
  }
  showBest();
  // On a phone the result is below the form.
  document.querySelector(".summary").scrollIntoView({ block: "nearest" });
  results.dataset.scored = JSON.stringify({ level: number, plan });
}

/** Return whether a plan is the one that its level begins with. */
function starts(number, plan) {
  const first = { ...config.plan, ...config.levels[number].plan };
  return Object.entries(first).every(([key, value]) => (plan[key] ?? value) === value);
}

/** Dim the score once the plan is another one. */
function outdate() {
  const scored = JSON.parse(results.dataset.scored ?? "null");
  const plan = read();
  const same = scored
    ? JSON.stringify(scored) === JSON.stringify({ level, plan })
    : starts(level, plan);
  results.classList.toggle("stale", !same);
  tell(problem, same ? "" : words.changed_plan);
}

function begin(number) {
  level = number;
  badLink = "";
  choosePlan(config.levels[level].plan);
  showBest();
  score();
}

function restore() {
  const what = chooseFromAddress(["level"], () => {
    level = form.elements.level.value;
    choosePlan(config.levels[level].plan);
  });
  badLink = what && say("bad_link", { what });
  tell(problem, badLink);
  readForm();
  count();
  showBest();
  if (fromAddress().length) {
    results.classList.add("stale");
    score();
  }
}

document.querySelector(".levels").addEventListener("input", (event) => {
  begin(event.target.value);
});
form.addEventListener("input", () => {
  readForm();
  count();
  outdate();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  badLink = "";
  score();
});
document.getElementById("best").addEventListener("click", () => {
  choosePlan(kept()[level].plan);
  score();
});
document.getElementById("copy-link").addEventListener("click", (event) => {
  toAddress({ level, ...read() });
  copy(event.target, location.href);
});
document.getElementById("copy-code").addEventListener("click", (event) => {
  copy(event.target, document.querySelector('[data-part="code"]').textContent);
});
window.addEventListener("hashchange", restore);

document.querySelectorAll("[data-script]").forEach((each) => { each.hidden = false; });
ask = startSimulator(() => {});
if (ask) {
  restore();
} else {
  count();
  showBest();
}
