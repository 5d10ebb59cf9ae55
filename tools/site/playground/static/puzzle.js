// The page with the puzzle.
"use strict";

const results = document.getElementById("results");
const problem = document.getElementById("problem");
const said = document.getElementById("said");
const KEPT = "d2l-gpu-puzzle";

let ask = null;
let ready = false;
let badLink = "";
let level = form.elements.level.value;

// ------------------------------------------------------------------ the best so far

// Browsers may refuse to keep anything. Then it's forgotten with the page.
let forgotten = {};
let forgetful = false;

// Somebody may have changed what's kept.
function kept() {
  try {
    return { ...JSON.parse(localStorage.getItem(KEPT)), ...forgotten };
  } catch (error) {
    forgetful ||= !(error instanceof SyntaxError);
    return forgotten;
  }
}

function keep(number, found) {
  const before = kept();
  if (found.share <= (before[number]?.share ?? 0)) return;
  const now = { ...before, [number]: found };
  try {
    localStorage.setItem(KEPT, JSON.stringify(now));
  } catch {
    forgotten = now;
    forgetful = true;
  }
}

function showBest() {
  const all = kept();
  for (const place of document.querySelectorAll("[data-best]")) {
    const share = all[place.dataset.best]?.percent;
    const none = forgetful ? "" : words.best_none;
    place.textContent = share ? say("best", { share }) : none;
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

/** Score the plan; it's the player's `own` if they asked for that. */
async function score(own = false) {
  const plan = read();
  const number = level;
  toAddress({ level: number, ...plan });
  if (!ready) outdate();
  if (!ask) return;
  results.setAttribute("aria-busy", "true");
  const answer = await ask({ ask: "score", level: number, plan });
  results.removeAttribute("aria-busy");
  if (number !== level) return;
  if (!answer) {
    outdate();
    return;
  }
  const sentences = [badLink, answer.problem, answer.problem && below("kept_score")];
  tell(problem, sentences.filter(Boolean).join(" "));
  results.classList.toggle("stale", Boolean(answer.problem));
  if (answer.problem) return;
  showParts(answer.parts);
  said.textContent = answer.say;
  if (own && !starts(number, plan)) {
    keep(number, { share: answer.share, percent: answer.percent, plan });
  }
  showBest();
  // On a phone the result is below the form.
  document.querySelector(".summary").scrollIntoView({ block: "nearest" });
  results.dataset.scored = JSON.stringify({ level: number, plan });
}

/** Return whose score the page shows: a level and a plan. */
function scored() {
  // The build scored the first level's first plan.
  const [first] = Object.keys(config.levels);
  return JSON.parse(results.dataset.scored ?? "null") ?? { level: first };
}

/** Return whose score is below, in a sentence; that of `key` if it's this level's. */
function below(key) {
  const { level: other } = scored();
  return other === level ? words[key] : say("other_level", { level: other });
}

/** Return whether a plan is the one that its level begins with. */
function starts(number, plan) {
  const first = { ...config.plan, ...config.levels[number].plan };
  return Object.entries(first).every(([key, value]) => (plan[key] ?? value) === value);
}

/** Dim the score if it isn't this plan's. */
function outdate() {
  const { level: number, plan: its } = scored();
  const plan = read();
  const alike = its ? JSON.stringify(its) === JSON.stringify(plan) : starts(level, plan);
  const same = number === level && alike;
  results.classList.toggle("stale", !same);
  tell(problem, [badLink, same ? "" : below("changed_plan")].filter(Boolean).join(" "));
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
  readForm();
  count();
  showBest();
  outdate();
  if (fromAddress().length) score();
}

document.querySelector(".levels").addEventListener("input", (event) => {
  begin(event.target.value);
});
form.addEventListener("input", () => {
  badLink = "";
  readForm();
  count();
  outdate();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  badLink = "";
  score(true);
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
ask = startSimulator(() => { ready = true; }, () => { ready = false; outdate(); });
restore();
