// Runs the simulator, so that the page stays responsive. The first message says which
// words to use, and how the simulator's own are translated; every other one is a question
// for live.py.

import { loadPyodide } from "../_pyodide/pyodide.mjs";

const PYODIDE = new URL("../_pyodide/", import.meta.url).href;
const SIMULATOR = new URL("simulator.zip", import.meta.url).href;
const PACKAGES = "/playground";

// The last line of a Python traceback says what went wrong.
const lastLine = (error) => String(error?.message ?? error).trim().split("\n").pop();

// Everything large is fetched, so this knows how much has arrived. It counts copies,
// because browsers keep compiled code for the next visit only of their own responses.
const fetched = self.fetch.bind(self);
let loaded = 0;
let told = 0;

async function count(copy) {
  const reader = copy.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    loaded += value.byteLength;
    if (performance.now() - told > 100) {
      told = performance.now();
      postMessage({ loaded });
    }
  }
}

// Pyodide waits for ever for some files that don't arrive, so this says so itself.
const failed = (error) => postMessage({ failure: lastLine(error) });

self.fetch = async (...request) => {
  try {
    const response = await fetched(...request);
    if (!response.ok) throw new Error(`${response.status} ${response.url}`);
    count(response.clone()).catch(failed);
    return response;
  } catch (error) {
    failed(error);
    throw error;
  }
};

// It waits likewise for code that isn't any. This is what it tries last.
const instantiate = WebAssembly.instantiate;
WebAssembly.instantiate = async (...what) => {
  try {
    return await instantiate(...what);
  } catch (error) {
    failed(error);
    throw error;
  }
};
self.addEventListener("unhandledrejection", (event) => failed(event.reason));

async function begin({ words, messages }) {
  const archive = fetch(SIMULATOR).then((response) => response.arrayBuffer());
  const python = await loadPyodide({ indexURL: PYODIDE });
  python.unpackArchive(await archive, "zip", { extractDir: PACKAGES });
  python.runPython(`import sys; sys.path.insert(0, "${PACKAGES}")`);
  const { speak, Live } = python.pyimport("playground.live");
  speak(python.toPy(messages));
  return Live(python.toPy(words));
}

let live;
self.onmessage = async ({ data }) => {
  try {
    if (data.words) {
      live = begin(data);
      await live;
      postMessage({ ready: true });
    } else {
      postMessage({ id: data.id, answer: (await live).answer(data.question) });
    }
  } catch (error) {
    postMessage({ id: data.id, failure: lastLine(error) });
  }
};
