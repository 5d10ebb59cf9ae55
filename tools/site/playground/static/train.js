// The page that trains a model.
"use strict";

const choices = config.choices;
const about = (name) => choices.models.find((each) => each.name === name);
const gpuNamed = (name) => choices.gpus.find((each) => each.name === name);
const results = document.getElementById("results");
const problem = document.getElementById("problem");
const said = document.getElementById("said");

let ask = null;
let ready = false;
let model = null; // whose options the form has
let badLink = "";

/** Give the form the options of its model and its GPU. */
function adapt() {
  const its = about(form.elements.model.value);
  if (model !== its.name) {
    const other = model !== null && about(model).kind !== its.kind;
    model = its.name;
    setOptions("batch", config.batches[model]);
    choose("batch", its.default.batch);
    if (its.kind === "plans") {
      for (const [name, options] of [
        ["tensor", its.tensor], ["checkpoint", its.checkpoints],
      ]) {
        if (!setOptions(name, options)) choose(name, its.default[name]);
      }
    }
    const label = form.querySelector('label[for="batch"]');
    label.textContent = its.unit === "images" ? words.batch : words.sequences;
    // What suits one kind of model seldom suits the other.
    if (other) Object.entries(its.default).forEach(([key, value]) => choose(key, value));
  }
  const gpu = gpuNamed(form.elements.gpu.value);
  const able = its.precisions.filter((each) => gpu.precisions.includes(each));
  // If there's none, the simulator says which GPUs have it.
  setOptions("precision", able.length ? able : its.precisions);
  for (const name of ["link", "network"]) {
    form.elements[name].options[0].text = say("usual", { name: gpu[name] });
  }
}

function read() {
  adapt();
  return readForm({ kind: about(form.elements.model.value).kind });
}

function complain(text) {
  const sentences = [badLink, text, text && words.kept].filter(Boolean);
  tell(problem, sentences.join(" "));
  results.classList.toggle("stale", Boolean(text));
}

// Only the newest setting matters; what's asked meanwhile is forgotten.
let wanted = null;
let busy = false;

async function update() {
  const all = read();
  if (Object.values(all).includes(undefined)) return; // somebody is still typing
  wanted = all;
  toAddress(wanted);
  if (!ask || busy) return;
  busy = true;
  results.setAttribute("aria-busy", "true");
  while (wanted) {
    const setting = wanted;
    wanted = null;
    const begin = performance.now();
    const answer = await ask({ ask: "play", setting });
    if (!answer) break;
    if (answer.problem) {
      complain(answer.problem);
      continue;
    }
    complain("");
    showParts(answer.parts);
    said.textContent = answer.say;
    results.dataset.milliseconds = Math.round(performance.now() - begin);
    // Point by point, so that a newer setting needn't wait for all of them.
    let more = null;
    for (let first = 1; !wanted && !more?.parts; first += 1) {
      more = await ask({ ask: "scaling", setting: answer.setting, first });
      if (!more?.rows) break;
    }
    if (wanted) continue;
    if (more?.parts) showParts(more.parts);
    results.dataset.setting = JSON.stringify(answer.setting);
  }
  results.removeAttribute("aria-busy");
  busy = false;
}

/** Say of what the result is, once there'll be no other. */
function giveUp() {
  if (!results.classList.contains("stale") && !wanted && !busy) return;
  results.classList.add("stale");
  tell(problem, [badLink, words.other_setting].filter(Boolean).join(" "));
}

/** Show the setting of the address; without one the form's, which the build computed. */
function restore() {
  if (!ask) return;
  const what = chooseFromAddress(["model", "gpu"], adapt);
  badLink = what && say("bad_link", { what });
  tell(problem, badLink);
  if (fromAddress().length) {
    results.classList.add("stale");
    if (!ready) tell(problem, [badLink, words.default_shown].filter(Boolean).join(" "));
    update();
  }
}

form.addEventListener("input", () => { badLink = ""; update(); });
form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("reset").addEventListener("click", () => {
  model = null;
  Object.entries(config.start).forEach(([key, value]) => choose(key, value));
  badLink = "";
  update();
});
document.getElementById("copy-link").addEventListener("click", (event) => {
  toAddress(read());
  copy(event.target, location.href);
});
document.getElementById("copy-code").addEventListener("click", (event) => {
  copy(event.target, document.querySelector('[data-part="code"]').textContent);
});
window.addEventListener("hashchange", restore);

document.querySelectorAll("[data-script]").forEach((each) => { each.hidden = false; });
adapt();
ask = startSimulator(() => { ready = true; }, giveUp);
restore();
