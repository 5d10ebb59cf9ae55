// What both pages of the playground share: the simulator's state, forms, and links.
"use strict";

const config = JSON.parse(document.getElementById("config").textContent);
const words = config.words;
const WORKER = new URL("worker.mjs", document.currentScript.src);

/** Return a text of the page with the names in braces filled in. */
function say(key, values = {}) {
  return words[key].replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}

/** Show a text, with `code` in it; hide the element if there's none. */
function tell(element, text) {
  element.hidden = !text;
  element.replaceChildren(
    ...text.split("`").map((part, i) => {
      if (i % 2 === 0) return part;
      const code = document.createElement("code");
      code.textContent = part;
      return code;
    }),
  );
}

/** Put HTML that live.py has made into the parts of the page. */
function showParts(parts) {
  for (const [name, html] of Object.entries(parts)) {
    const part = document.querySelector(`[data-part="${name}"]`);
    part.innerHTML = html;
    part.querySelectorAll("svg").forEach((svg) => window.answers?.(svg));
  }
  showStar();
}

/** Scroll a map that's wider than the screen to the player's plan. */
function showStar() {
  const star = document.querySelector('.picture path[fill="#222222"][stroke="#FFFFFF"]');
  const frame = star?.closest(".picture");
  if (!frame) return;
  const { left, width } = star.getBoundingClientRect();
  const middle = frame.getBoundingClientRect().left + frame.clientWidth / 2;
  frame.scrollLeft += left + width / 2 - middle;
}
showStar();

// ------------------------------------------------------------------ the simulator

const state = document.getElementById("state");
const progress = document.getElementById("loaded");

// While it loads, something arrives or happens at least so often.
const PATIENCE = 60_000;

/**
 * Load the simulator; return a function that asks it, or null if that can't work.
 * If it fails later, `onFailure` is called, and answers are null.
 */
function startSimulator(onReady, onFailure) {
  const waiting = new Map();
  let worker = null;
  let ready = false;
  let failed = false;
  let last = 0;
  let timer = 0;

  const fail = (key, why) => {
    if (failed) return null; // the first cause is the one to tell
    failed = true;
    clearTimeout(timer);
    worker?.terminate();
    progress.hidden = true;
    state.classList.add("bad");
    tell(state, say(key, { why }));
    document.querySelector("form").inert = true;
    waiting.forEach((resolve) => resolve(null));
    if (worker) onFailure();
    return null;
  };
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => fail("failed", words.silent), PATIENCE);
  };
  const announce = () => {
    const text = waiting.size ? words.computing : words.ready;
    // Screen readers would say the same text again.
    if (state.textContent !== text) tell(state, text);
  };
  // What's answered at once isn't announced.
  const announceSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(announce, 300);
  };

  if (location.protocol === "file:") return fail("as_file");
  if (typeof WebAssembly !== "object" || typeof Worker !== "function") {
    return fail("no_webassembly");
  }
  worker = new Worker(WORKER, { type: "module" });
  worker.onerror = (event) => {
    fail(ready ? "stopped" : "failed", event.message ?? "worker.mjs");
  };
  worker.onmessage = ({ data }) => {
    if (failed) return;
    if (data.loaded) {
      if (ready) return;
      wait();
      progress.value = data.loaded;
      if (data.loaded > 0.99 * progress.max) tell(state, words.starting);
    } else if (data.ready) {
      ready = true;
      progress.hidden = true;
      clearTimeout(timer);
      announce();
      onReady();
    } else if (!ready) {
      fail("failed", data.failure);
    } else if (waiting.has(data.id)) {
      waiting.get(data.id)(
        data.failure
          ? { problem: say("stopped", { why: data.failure }) }
          : JSON.parse(data.answer),
      );
      waiting.delete(data.id);
      announceSoon();
    }
  };
  tell(state, say("loading", { total: Math.round(progress.max / 1e6) }));
  progress.hidden = false;
  wait();
  worker.postMessage({ words, messages: config.messages });
  return (question) =>
    new Promise((resolve) => {
      if (failed) {
        resolve(null);
        return;
      }
      last += 1;
      waiting.set(last, resolve);
      worker.postMessage({ id: last, question: JSON.stringify(question) });
      if (ready) announceSoon();
    });
}

// ------------------------------------------------------------------ forms

const form = document.querySelector("form");

/** Return whether one of the conditions of data-when holds, or there are none. */
function holds(when, values) {
  if (!when) return true;
  return when.split(" ").some((condition) => {
    const [, name, sign, value] = condition.match(/(\w+)([>=])(\w+)/);
    return sign === ">" ? values[name] > Number(value) : String(values[name]) === value;
  });
}

/** Return the values of all controls, and of `more`. */
function readAll(more = {}) {
  const values = { ...more };
  for (const control of form.querySelectorAll("select, input[type=number]")) {
    const { name, value } = control;
    if (value === "") values[name] = control.type === "number" ? undefined : null;
    else values[name] = "number" in control.dataset ? +value : value;
  }
  return values;
}

/** Take back what would make no sense beside other values of a plan. */
function tidy() {
  const { pipeline, schedule, stages } = form.elements;
  if (!schedule) return;
  if (pipeline.value === "1") schedule.selectedIndex = 0;
  // Plans that aren't interleaved have one stage; then the first option is chosen.
  if (schedule.value === "interleaved") {
    stages.querySelector('option[value="1"]')?.remove();
  } else {
    choose("stages", 1);
  }
}

/** Show the controls that apply; return the values of those. */
function readForm(more) {
  tidy();
  const all = readAll(more);
  for (const element of form.querySelectorAll("[data-when]")) {
    element.hidden = !holds(element.dataset.when, all);
  }
  return Object.fromEntries(
    Object.entries(all).filter(
      ([name]) => form.elements[name] && !form.elements[name].closest("[hidden]"),
    ),
  );
}

/** Choose a value, which a control of numbers may not have had; return whether. */
function choose(name, value) {
  const control = form.elements[name];
  const text = String(value ?? "");
  if (control instanceof RadioNodeList) {
    if ([...control].some((each) => each.value === text)) control.value = text;
    return control.value === text;
  }
  if (control?.type === "number") {
    const right = /^\d+$/.test(text) && +text >= +control.min && +text <= +control.max;
    if (right) control.value = text;
    return right;
  }
  if (!(control instanceof HTMLSelectElement)) return false;
  const has = () => [...control.options].some((option) => option.value === text);
  if (!has() && "number" in control.dataset && /^[1-9]\d{0,6}$/.test(text)) {
    control.add(new Option(text, text));
  }
  if (has()) control.value = text;
  return has();
}

/** Replace the options of a control; the value stays if it can. Return whether. */
function setOptions(name, options) {
  const control = form.elements[name];
  const before = control.value;
  control.replaceChildren(...options.map((value) => new Option(value, value)));
  control.value = before;
  if (control.selectedIndex >= 0) return true;
  control.selectedIndex = 0;
  return false;
}

// ------------------------------------------------------------------ links

/** Return what the address asks for, as names and values. */
function fromAddress() {
  return [...new URLSearchParams(location.hash.slice(1))];
}

/** Let the address say what's chosen. */
function toAddress(values) {
  const pairs = Object.entries(values).map(([key, value]) => [key, value ?? ""]);
  history.replaceState(null, "", `#${new URLSearchParams(pairs)}`);
}

/**
 * Choose what the address asks for; return what there isn't.
 * What controls offer depends on those named `first`: `adapt` is called after each.
 */
function chooseFromAddress(first, adapt) {
  const asked = fromAddress();
  const right = [];
  for (const one of first) {
    right.push(...asked.filter(([name, value]) => name === one && choose(name, value)));
    adapt();
  }
  right.push(
    ...asked.filter(([name, value]) => !first.includes(name) && choose(name, value)),
  );
  const missing = asked.filter((pair) => !right.includes(pair))
    .map((pair) => pair.join("=")).join(", ");
  return missing.length > 60 ? `${missing.slice(0, 59)}…` : missing;
}

/** Copy a text, and say so on the button for a moment. */
async function copy(button, text) {
  // A second click may come while it still says so.
  const label = (button.dataset.label ??= button.textContent);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    window.prompt(label, text);
    return;
  }
  button.textContent = words.copied;
  setTimeout(() => { button.textContent = label; }, 1500);
}
