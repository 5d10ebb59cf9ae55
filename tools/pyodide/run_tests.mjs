// Run pytest on Pyodide, the Python of browsers:
//
//     npm ci --prefix tools/pyodide
//     node tools/pyodide/run_tests.mjs . SITE_PACKAGES tests/vgpu/sim
//
// The repository (.) and SITE_PACKAGES, a folder in which pytest is installed, are all
// that the tests can see. No package with compiled code can be imported.

import { resolve } from "node:path";
import process from "node:process";
import { loadPyodide } from "pyodide";

const [project, site, ...tests] = process.argv.slice(2);
const python = await loadPyodide({
  env: { PYTEST_DISABLE_PLUGIN_AUTOLOAD: "1", PYTHONDONTWRITEBYTECODE: "1" },
});
python.mountNodeFS("/site", resolve(site));
python.mountNodeFS("/project", resolve(project));
python.globals.set("tests", python.toPy(tests));
const status = python.runPython(`
import os, sys
os.chdir("/project")
sys.path[:0] = ["/project", "/site"]
from pathlib import Path
import pytest
# Those with hypothesis, which is compiled.
compiled = [f"--ignore={path}" for folder in tests for path in Path(folder).glob("*.py")
            if "from hypothesis" in path.read_text(encoding="utf-8")]
print("Pyodide, Python", sys.version.split()[0])
int(pytest.main(["--noconftest", "-c", "/dev/null", "--rootdir=/project",
                 "-pno:cacheprovider", "-q", *compiled, *tests]))
`);
process.exit(status);
