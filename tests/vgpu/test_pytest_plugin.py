"""The pytest plugin, as projects that test multi-GPU code see it."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.helpers.fresh_process import NO_GPUS, PATH, run_program_without_torch
from tests.helpers.paths import REPOSITORY

pytest_plugins = ["pytester"]

# Where the project is on the path without being installed, pytest has to be told.
INSTALLED = entry_points(group="pytest11", name="d2l_gpu_vgpu")
OPTIONS = [] if INSTALLED else ["-p", "d2l_gpu.vgpu.pytest_plugin"]


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """A function that runs the tests in a text, and checks how many did what."""
    for name, value in (PATH | NO_GPUS).items():
        monkeypatch.setenv(name, value)

    def run(text, *options, **outcomes):
        imports = "import pytest\nimport torch\nfrom d2l_gpu import vgpu\n"
        pytester.makepyfile(test_it=imports + textwrap.dedent(text))
        result = pytester.runpytest_subprocess(*OPTIONS, *options)
        result.assert_outcomes(**outcomes)
        return result

    return run


def test_the_example_project_passes(tmp_path):
    status, output = run_project(copy_of_example(tmp_path))
    assert status == 0, output
    assert "18 passed" in output


def copy_of_example(tmp_path: Path) -> Path:
    return shutil.copytree(REPOSITORY / "examples" / "testing", tmp_path / "example")


def run_project(project: Path, *options: str) -> tuple[int, str]:
    """Run a project's tests as its users would; return exit status and output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *options],
        cwd=project,
        env=os.environ | PATH | NO_GPUS | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


# What docs/vgpu/pytest.md shows: a part of mixture.py, and a mistake in its place.
BUGS = {
    "a tensor forgotten on the CPU": (", device=X.device)", ")"),
    "a list of modules that isn't a ModuleList": (
        "nn.ModuleList(\n            nn.Linear(width, width) "
        "for _ in range(num_experts)\n        )",
        "[nn.Linear(width, width) for _ in range(num_experts)]",
    ),
    "a hidden synchronization in the loop": ("loss.detach()", "loss.item()"),
    "a rank that uses another's device": ("torch.device(device, rank)", "device"),
    "a wrong `map_location`": ("map_location=device, ", ""),
}
TESTING = (REPOSITORY / "docs" / "vgpu" / "pytest.md").read_text("utf-8")


def test_the_page_for_authors_of_libraries_names_these_mistakes():
    section = TESTING.partition("## Mistakes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]*) \| [^|]* \| [^|]* \|$", section, re.M)
    assert set(BUGS) < set(rows) and len(rows) == len(BUGS) + 1  # the header


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.all if i < 2 else pytest.mark.weekly)
        for i, name in enumerate(BUGS)
    ],
)
def test_a_mistake_passes_on_the_cpu_and_fails_on_virtual_gpus(name, tmp_path):
    project = copy_of_example(tmp_path)
    code = (project / "mixture.py").read_text("utf-8")
    right, wrong = BUGS[name]
    assert code.count(right) == 1
    (project / "mixture.py").write_text(code.replace(right, wrong), "utf-8")
    status, output = run_project(project, "-k", "mixture and cpu")
    assert status == 0 and "5 passed" in output, output
    status, output = run_project(project, "-k", "mixture and vgpu")
    assert status == 1 and "failed" in output and "error" not in output.splitlines()[-1]


@pytest.mark.all
def test_fixture_and_marker_say_how_many_devices_there_are(run_tests):
    run_tests(
        """
        def names(devices):
            return [str(device) for device in devices]

        def test_two_if_nothing_is_said(virtual_gpus):
            assert names(virtual_gpus) == ["vgpu:0", "vgpu:1"]
            assert torch.accelerator.device_count() == 2

        @pytest.mark.virtual_gpus(4, memory="3MiB")
        def test_four(virtual_gpus):
            assert names(virtual_gpus) == ["vgpu:0", "vgpu:1", "vgpu:2", "vgpu:3"]
            assert torch.accelerator.get_memory_info(3) == (3 * 2**20,) * 2

        @pytest.fixture
        def early():
            return torch.ones(1, device="vgpu:2")

        @pytest.mark.virtual_gpus(3)
        def test_the_marker_alone_sets_them_up_before_other_fixtures(early):
            assert torch.accelerator.device_count() == 3

        @pytest.mark.virtual_gpus(n=1)
        class TestOfAClass:
            def test_one(self, virtual_gpus):
                assert names(virtual_gpus) == ["vgpu:0"]

            @pytest.mark.virtual_gpus(5)
            def test_the_closest_marker_counts(self):
                assert torch.accelerator.device_count() == 5

        @pytest.mark.parametrize(
            "count", [2, pytest.param(3, marks=pytest.mark.virtual_gpus(3))]
        )
        def test_a_marker_of_one_case(virtual_gpus, count):
            assert len(virtual_gpus) == count
        """,
        "--strict-markers",
        passed=7,
    )


@pytest.mark.all
def test_every_test_finds_the_machine_new(run_tests):
    run_tests(
        """
        kept = []

        @pytest.mark.parametrize("again", range(3))
        def test_counts_start_at_zero(virtual_gpus, again):
            machine = vgpu.machine_in_use()
            assert machine.peak == machine.kernels == [0, 0]
            assert torch.vgpu.current_device() == 0
            assert torch.vgpu.current_stream(1) == torch.vgpu.default_stream(1)
            torch.vgpu.set_stream(torch.vgpu.Stream(1))
            X = torch.ones(2, device=virtual_gpus[1])
            cycle = [X]
            cycle.append(cycle)
            assert machine.peak[1] and machine.kernels[1]

        @pytest.mark.xfail
        def test_a_failure_keeps_its_tensors_in_its_traceback(virtual_gpus):
            X = torch.ones(2, device=virtual_gpus[1])
            assert False

        @pytest.mark.virtual_gpus(3)
        def test_which_does_not_disturb_the_next():
            assert vgpu.machine_in_use().used == [0, 0, 0]
        """,
        "-Werror",
        passed=4,
        xfailed=1,
    )


@pytest.mark.all
def test_leftover_tensors_are_named_where_they_are_in_the_way(run_tests):
    result = run_tests(
        """
        kept = []

        def test_leaves_some(virtual_gpus):
            X = torch.ones(2, device=virtual_gpus[0])
            kept.append(X.to(virtual_gpus[1]))

        def test_same_settings(virtual_gpus):
            assert torch.vgpu.max_memory_allocated(0) == 0
            X = torch.ones(2, device=virtual_gpus[0])

        @pytest.mark.virtual_gpus(4)
        def test_other_settings():
            raise AssertionError("does not come here")

        def test_does_without():
            kept.clear()

        @pytest.mark.virtual_gpus(4)
        def test_other_settings_once_they_are_gone():
            assert torch.vgpu.device_count() == 4
        """,
        passed=4,
        errors=1,
        warnings=1,
    )
    where = (
        "they still hold 512 bytes of tensors, left by test_it.py::test_leaves_some."
    )
    result.stdout.fnmatch_lines(
        [
            "The virtual GPUs cannot be set up as this test needs them: " + where,
            "*PytestWarning: The virtual GPUs are not empty: " + where,
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py:*: *")  # no traceback


@pytest.mark.all
def test_a_marker_without_sense_is_an_error_of_one_sentence(run_tests):
    result = run_tests(
        """
        @pytest.mark.virtual_gpus(0)
        def test_none():
            pass

        @pytest.mark.virtual_gpus(2, memory="lots")
        def test_size():
            pass

        @pytest.mark.virtual_gpus(2, memroy=1)
        def test_name():
            pass

        @pytest.mark.virtual_gpus(2, model="Z80")
        def test_model():
            pass
        """,
        errors=4,
    )
    result.stdout.fnmatch_lines(
        [
            "The number of virtual GPUs must be at least 1, but got 0.",
            "Cannot parse the memory size 'lots': *",
            "@pytest.mark.virtual_gpus(n=2, *) got an unexpected * 'memroy'.",
            "*'Z80'*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py:*: *")


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (
            "torch.utils.rename_privateuse1_backend('other')",
            "*'other' already occupies*",
        ),
        pytest.param(
            "torch.__version__ = '2.9.1'",
            "Virtual GPUs need PyTorch 2.10 or newer*",
        ),
        ("import sys; sys.modules['torch'] = None", "*torch*"),
    ],
)
@pytest.mark.all
def test_where_there_can_be_none_the_sentence_of_enable_is_the_error(
    run_tests, cause, sentence
):
    result = run_tests(
        f"""
        {cause}

        def test_it(virtual_gpus):
            pass
        """,
        errors=1,
    )
    result.stdout.fnmatch_lines([sentence])


@pytest.mark.all
def test_as_cuda_is_passed_on_when_it_is_asked_for(run_tests):
    run_tests(
        """
        calls, enable = [], vgpu.enable

        def spy(n, **options):
            calls.append(options)
            enable(n)

        vgpu.enable = spy

        @pytest.mark.virtual_gpus(2, as_cuda=True)
        def test_asks():
            assert calls.pop() == {"memory": None, "as_cuda": True}

        @pytest.mark.virtual_gpus(2)
        def test_does_not_ask():
            assert calls.pop() == {"memory": None}
        """,
        passed=2,
    )


@pytest.mark.all
def test_the_marker_chooses_the_allocator_and_the_model(run_tests):
    run_tests(
        """
        @pytest.mark.virtual_gpus(2, allocator="caching", model=["H100", "A100"])
        def test_chosen():
            X = torch.ones(1, device="vgpu")
            assert torch.vgpu.memory_allocated() == 512
            assert torch.vgpu.memory_reserved() == 2 * 2**20
            assert "H100" in str(vgpu.current_simulator().report())

        @pytest.mark.virtual_gpus(2)
        def test_not_chosen():
            X = torch.ones(1, device="vgpu")
            assert torch.vgpu.memory_reserved() == 512
            assert "H100" not in str(vgpu.current_simulator().report())
        """,
        passed=2,
    )


@pytest.mark.all
def test_the_sync_debug_mode_of_a_test_ends_with_it(run_tests):
    run_tests(
        """
        @pytest.fixture(autouse=True, scope="module")
        def of_the_program():
            torch.ones(0)  # virtual GPUs aren't there yet
            vgpu.enable()
            torch.vgpu.set_sync_debug_mode("warn")

        @pytest.mark.parametrize("fails", [True, False])
        def test_strict(virtual_gpus, fails):
            assert torch.vgpu.get_sync_debug_mode() == 1
            torch.vgpu.set_sync_debug_mode("error")
            if fails:
                torch.ones(1, device=virtual_gpus[1]).item()

        def test_afterwards():
            assert torch.vgpu.get_sync_debug_mode() == 1
        """,
        passed=2,
        failed=1,
    )


@pytest.mark.all
def test_a_traceback_ends_at_the_line_of_the_program(run_tests):
    result = run_tests(
        """
        def test_it(virtual_gpus):
            X, Y = (torch.ones(2, 2, device=device) for device in virtual_gpus)
            net = torch.nn.Linear(2, 2).to(virtual_gpus[0])
            net(Y)
        """,
        failed=1,
    )
    result.stdout.fnmatch_lines([">       net(Y)"])
    result.stdout.no_fnmatch_line("*vgpu/tensor.py*")


def test_a_strict_suite_runs_under_the_command(tmp_path):
    # pytest looks for its plugins among the files of installed packages.
    installed = tmp_path / "packages" / "d2l_gpu-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: d2l-gpu\nVersion: 0\n")
    (installed / "RECORD").write_text("d2l_gpu/__init__.py,,\n")
    plugin = "[pytest11]\nd2l_gpu_vgpu = d2l_gpu.vgpu.pytest_plugin\n"
    (installed / "entry_points.txt").write_text(plugin)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text(
        "import torch\n\n"
        "def test_cuda():\n"
        "    assert torch.ones(2, device='cuda:1').sum().item() == 2\n"
    )
    paths = os.pathsep.join([str(installed.parent), str(REPOSITORY)])
    done = subprocess.run(
        [sys.executable, "-m", "d2l_gpu.vgpu", "-m", "pytest", "-q"],
        cwd=tmp_path,
        env=os.environ | NO_GPUS | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout and "warning" not in done.stdout


def test_loading_the_plugin_does_not_load_torch():
    out = run_program_without_torch(
        "pytest_plugin/loading_the_plugin_does_not_load_torch.py"
    )
    assert out == "False\n"
