// Run a Python program on Pyodide, the Python of browsers:
//
//     npm ci --prefix tools/pyodide
//     node tools/pyodide/run_program.mjs . tools/play_settings.py --seconds
//
// The repository (.) is all that the program can see, beside Python's own library.

import { resolve } from "node:path";
import process from "node:process";
import { loadPyodide } from "pyodide";

const [project, program, ...options] = process.argv.slice(2);
const python = await loadPyodide({ env: { PYTHONDONTWRITEBYTECODE: "1" } });
python.mountNodeFS("/project", resolve(project));
python.globals.set("arguments", python.toPy([program, ...options]));
python.runPython(`
import os, runpy, sys
os.chdir("/project")
sys.path.insert(0, "/project")
sys.argv = list(arguments)
runpy.run_path(sys.argv[0], run_name="__main__")
`);
