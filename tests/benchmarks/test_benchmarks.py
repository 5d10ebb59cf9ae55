"""Benchmarks end with a line that a program can read. No test asserts a duration."""

import csv
import json
import re
import statistics
import subprocess
import sys
from itertools import count

import pytest
import torch

from d2l_gpu import torch as d2l
from d2l_gpu.vgpu.sim import catalogue
from tests.helpers.paths import REPOSITORY
from tests.helpers.waiting import wait_until

sys.path.append(str(REPOSITORY / "benchmarks"))
import kernels
import published
from common import alternated

PROTOCOLS = ("LL", "LL128", "Simple")


def run_benchmark(name: str, *options: str) -> tuple[list[str], dict]:
    """Run a benchmark; return its lines, and what the last one says in JSON."""
    script = REPOSITORY / "benchmarks" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script), *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, last = done.stdout.splitlines()
    result = json.loads(last)
    assert list(result) == ["name", "value", "unit", "baseline", "hardware"]
    assert result["name"] == name
    # A difference of accuracies may be none.
    assert result["value"] > 0 or (name == "accuracy" and result["value"] == 0)
    return lines, result


@pytest.mark.all
def test_import_time_prints_a_sentence_and_json():
    (sentence,), _ = run_benchmark("import_time", "--quick")
    assert sentence.startswith("import d2l_gpu.torch")


@pytest.mark.all
def test_plans_prints_programs_beside_plans_and_json():
    (first, *lines), result = run_benchmark("plans", "--quick")
    assert first.startswith(result["hardware"])
    assert sum("the program's" in line for line in lines) == 2
    assert sum(line.startswith("llama8b-") for line in lines) == 3
    assert result["value"] < 0.01


@pytest.mark.all
def test_virtual_overhead_prints_two_tables_and_json():
    (first, *lines), result = run_benchmark("virtual_overhead", "--quick")
    assert first.startswith(result["hardware"])
    operators = [line for line in lines if line.startswith(("warm, ", "cold, "))]
    assert len(operators) == 4
    assert {len(re.findall(r"-?\d+\.\d", line)) for line in operators} == {6}
    steps = [line for line in lines if line.endswith("  equal")]
    assert [line.split()[0] for line in steps] == ["ResNet-18,", "MLP", "CNN,", "the"]
    assert float(steps[0].split()[-3]) == result["value"]
    assert re.search(r"\d\.\d+ virtual, \d\.\d+ with as many replicas", lines[-1])


@pytest.mark.all
def test_gpt_overhead_prints_a_sentence_and_json():
    (first, sentence), result = run_benchmark("gpt_overhead", "--quick")
    assert first.startswith(result["hardware"])
    ratio = float(re.search(r"(\d+\.\d{3}) times", sentence).group(1))
    assert ratio == result["value"]


@pytest.mark.all
@pytest.mark.parametrize("run", ["rn50-v100-fp32-1", "book-v100-1"])
def test_published_prints_a_row_for_each_run_and_json(run):
    lines, result = run_benchmark("published", run)
    (row,) = [line.split() for line in lines if line.startswith(run)]
    published, simulated, error = (float(x.rstrip("%")) for x in row[-3:])
    ratio = published / simulated if "seconds" in row else simulated / published
    assert error == pytest.approx(100 * (ratio - 1), abs=1)
    assert result["value"] == pytest.approx(abs(error) / 100, abs=1e-3)


@pytest.mark.all
def test_accuracy_prints_a_row_per_seed_and_json():
    lines, result = run_benchmark("accuracy", "--quick")
    (row,) = [line.split() for line in lines if line.startswith("seed 0")]
    one, two, _ = map(float, row[2:])
    assert result["value"] == pytest.approx(abs(one - two), abs=1e-4)


@pytest.mark.all
def test_loader_prints_a_table_and_json():
    (first, *lines), result = run_benchmark("loader", "--quick")
    assert first.startswith(result["hardware"])
    table = [
        line for line in lines if re.search(r"(indexed|\d workers) +[\d,]+ ", line)
    ]
    assert len(table) == 4
    figures = [line.split()[-3] for line in table]  # medians
    values = [float(figure.replace(",", "")) for figure in figures]
    best = max(values[1:])
    assert figures[values.index(best, 1)] in result["baseline"]
    assert result["value"] == pytest.approx(values[0] / best, abs=0.051)


@pytest.mark.all
@pytest.mark.skipif(
    sys.platform == "win32" or not torch.distributed.is_available(),
    reason="needs torch.distributed with gloo",
)
def test_ddp_scaling_prints_two_ratios_and_json():
    (first, second, *lines), result = run_benchmark("ddp_scaling", "--quick")
    assert first == result["hardware"]
    assert "2 images per rank, 1 thread per rank" in second
    assert [line.split()[0] for line in lines] == ["virtual"]
    ratio = float(re.search(r"(\d\.\d\d) times", lines[0]).group(1))
    assert ratio == pytest.approx(result["value"], abs=0.006)


@pytest.mark.weekly
@pytest.mark.skipif(
    sys.platform != "linux" or not torch.distributed.is_available(),
    reason="needs torch.distributed with gloo, and /proc",
)
def test_recovery_leaves_nothing_behind():
    (first, *runs, ranks, plain, anything), result = run_benchmark(
        "recovery", "--quick"
    )
    assert first == result["hardware"]
    assert [line.split()[-1] for line in runs] == ["equal"]
    assert ranks.startswith("1 of 1 kills recovered; seconds until back: median ")
    assert result["value"] == 1
    assert re.match(r"[01] of 1 kills recovered by torchrun", plain)
    left = "0 processes and 0 files half written left; (\\d) of \\1 runs ended equal"
    assert re.search(left, anything)


def test_recovery_sees_half_a_file_and_a_process_that_is_left(tmp_path):
    import recovery

    (tmp_path / "half").write_bytes(b"x" * 100)
    assert not recovery.whole(tmp_path / "half")
    net = torch.nn.Linear(1, 1)
    kept = d2l.Checkpoints(tmp_path, net, torch.optim.SGD(net.parameters()))
    kept.resume()
    kept.save(1)
    assert all(map(recovery.whole, tmp_path.glob("step-*.pt")))
    code = "import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        # Its command line can be read a moment after it has started.
        wait_until(lambda: recovery.processes_of(tmp_path))
        assert recovery.processes_of(tmp_path) == [(process.pid, "launch")]
    finally:
        process.kill()
        process.wait()


@pytest.mark.all
def test_train_cpu_prints_a_ladder_and_json():
    (first, features, _, *lines), result = run_benchmark("train_cpu", "--quick")
    assert first.startswith(result["hardware"])
    assert features.startswith("features: ")
    rungs = [line for line in lines if re.search(r"\d+\.\d +\d+\.\d{2}$", line)]
    assert len(rungs) == 5
    ratios = [float(line.split()[-1]) for line in rungs]
    assert ratios[0] == 1
    assert result["value"] == ratios[-1]
    assert lines[-1].startswith("a trial took ")


@pytest.mark.all
def test_train_gpu_climbs_the_ladder_and_says_what_it_lacks():
    (first, second, *lines), result = run_benchmark(
        "train_gpu", "--quick", "--device", "cpu"
    )
    assert result["hardware"] in first
    assert "random images, for speed alone" in second
    rungs = [line for line in lines if re.search(r"\d\.\d{3} +\d+\.\d{2}$", line)]
    assert [line.split()[0] for line in rungs] == ["float32,", *["…"] * 4]
    assert not any(line.startswith("test accuracy") for line in lines)


def test_train_gpu_counts_the_operations_of_an_epoch():
    import train_gpu

    # ResNet-18 at 28×28: 2.73 GFLOP per image, forward and backward.
    assert train_gpu.operations(60_000) == pytest.approx(0.164e15, rel=0.01)
    assert train_gpu.peak("NVIDIA H100 80GB HBM3") == 989.4e12
    assert train_gpu.peak("some GPU") is None


def test_kernels_are_those_of_the_recorded_results():
    (first, *lines), result = run_benchmark("kernels")
    assert "no GPU is used" in first
    # Simulated, so that the same figure comes out on every machine.
    assert result["value"] <= 0.25
    kept = (REPOSITORY / "benchmarks" / "results" / "kernels.txt").read_text()
    assert kept.splitlines()[1:-1] == lines
    assert json.loads(kept.splitlines()[-1])["value"] == result["value"]


def test_what_convolutions_reach_follows_from_the_kernels_of_a_t4():
    found = kernels.derived()
    shares = {name: round(share, 2) for name, share in catalogue.SHARES.items()}
    assert found["share"] == shares
    assert found["seconds"] == catalogue.BESIDE.figures


def test_collectives_are_simulated_as_recorded():
    lines, result = run_benchmark("collectives")
    kept = (REPOSITORY / "benchmarks" / "results" / "collectives.txt").read_text()
    assert lines[1:] == kept.splitlines()[1:-1]  # without the hardware
    rows = [line.split() for line in lines if line.rstrip().endswith(PROTOCOLS)]
    assert len(rows) > 80
    for row in rows:
        published, simulated, error = (float(x.rstrip("%")) for x in row[-5:-2])
        if published > 10:
            assert error == pytest.approx(100 * (simulated / published - 1), abs=1)
    (large,) = [line for line in lines if line.startswith("large: median")]
    assert large.split()[2].rstrip("%,") == f"{100 * result['value']:.1f}"


def test_a_published_run_is_simulated_as_recorded():
    lines, _ = run_benchmark("published", "book")
    kept = (REPOSITORY / "benchmarks" / "results" / "published.txt").read_text()
    runs = [line for line in lines if line.startswith("book")]
    assert len(runs) == 2
    assert set(runs) <= set(kept.splitlines())


def test_a_published_peak_is_simulated_as_recorded():
    lines, result = run_benchmark("memory", "gpt2-flash")
    kept = (REPOSITORY / "benchmarks" / "results" / "memory.txt").read_text()
    (row,) = [line for line in lines if line.startswith("gpt2-flash")]
    assert row in kept.splitlines()
    allocated, reserved, published, error = (x.rstrip("%") for x in row.split()[-4:])
    ratio = float(reserved) / float(published)
    assert float(error) == pytest.approx(100 * (ratio - 1), abs=0.2)
    assert result["value"] == pytest.approx(abs(float(error)) / 100, abs=1e-3)
    assert float(allocated) <= float(reserved)


def test_the_values_of_the_book_are_medians_of_its_builds():
    with (published.DATA.parent / "book_builds.csv").open() as file:
        builds = csv.DictReader(line for line in file if not line.startswith("#"))
        seconds = [(x["seconds"], x["seconds_on_two"]) for x in builds]
    assert len(seconds) == 28
    book = [row for row in published.rows() if row.id.startswith("book")]
    for row, found in zip(book, zip(*seconds, strict=True), strict=True):
        assert row.value == statistics.median(map(float, found))


def test_pages_and_reports_have_the_recorded_errors():
    """The tables, and what reports say, follow from the recorded results."""
    found = published.recorded()
    assert len(found) > 30
    table = published.table(found)
    for page in published.PAGES:
        assert table in page.read_text(encoding="utf-8")
    assert published.expected(found) == published.EXPECTED.read_text(encoding="utf-8")


def test_the_clock_has_the_recorded_time_of_a_replica():
    kept = (REPOSITORY / "benchmarks" / "results" / "host.txt").read_text()
    recorded = kept.splitlines()[-1]
    ratio = catalogue.REPLICA.value / catalogue.ISSUE.value
    assert ratio == pytest.approx(json.loads(recorded)["value"])


@pytest.mark.all
def test_clock_vs_gpu_compares_what_it_measures():
    # The CPU stands for a GPU here: what comes out is no statement about the clock.
    options = ("--quick", "--device", "cpu", "--model", "Xeon E5-2698 v4")
    (first, *lines), result = run_benchmark("clock_vs_gpu", *options)
    assert first.endswith("simulated as Xeon E5-2698 v4")
    rows = [line for line in lines if line.count("µs") == 2]
    assert len(rows) == 9
    errors = [abs(float(row.split()[-1])) for row in rows]
    assert result["value"] == pytest.approx(sorted(errors)[4], abs=0.006)
    assert lines[-1].startswith("worst: ")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU")
@pytest.mark.all
def test_clock_vs_gpu_says_so_where_there_is_none():
    script = REPOSITORY / "benchmarks" / "clock_vs_gpu.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("This machine has no GPU")


def test_measures_take_turns_and_the_first_round_is_dropped():
    clock = count()
    # turns: 0 1 (dropped), 2 3, 4 5, 6 7
    assert alternated([lambda: next(clock), lambda: next(clock)], rounds=3) == [4, 5]
    # 8 9, kept
    assert alternated([lambda: next(clock)] * 2, rounds=1, cold=True) == [8, 9]


def test_no_rounds_is_an_error():
    with pytest.raises(ValueError, match="rounds is 0"):
        alternated([], rounds=0)
