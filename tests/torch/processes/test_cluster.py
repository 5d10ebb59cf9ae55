"""Scripts on several machines: what is typed there is what was meant, and it works."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from d2l_gpu import torch as d2l
from tests.helpers.fresh_process import NO_GPUS, PATH
from tests.helpers.namespaces import two_machines, why_not
from tests.helpers.paths import PROGRAMS
from tests.helpers.waiting import PATIENCE, processes_with, wait_until

SCRIPT = PROGRAMS / "cluster" / "two_nodes.py"
NASTY = [
    "a b",
    "it's",
    '"',
    "$HOME $(touch no) `touch no`",
    "two\nlines",
    "",
    "\\",
    "*",
]
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

needs_torchrun = pytest.mark.skipif(
    sys.platform == "win32" or not torch.distributed.is_available(),
    reason="needs torch.distributed with gloo",
)
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
needs_machines = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("train.py")
    path.write_text("")
    return path


# ---------------------------------------------------------------- the command


def test_the_command_for_two_machines(script):
    command = d2l.torchrun_command(script, 4, ["--epochs", 3], nnodes=2, head="node-a")
    assert str(command) == (
        "torchrun \\\n"
        "    --nnodes=2 \\\n"
        "    --nproc-per-node=4 \\\n"
        "    --rdzv-backend=c10d \\\n"
        "    --rdzv-endpoint=node-a:29400 \\\n"
        "    --rdzv-id=train \\\n"
        "    train.py --epochs 3"
    )
    assert repr(command).splitlines()[0].split() == ["part", "meaning"]
    assert len(repr(command).splitlines()) == 1 + len(str(command).splitlines())
    assert command._repr_html_().count("<tr>") == 8


def test_torchrun_understands_the_command(script):
    from torch.distributed.run import config_from_args, parse_args

    command = d2l.torchrun_command(
        script,
        2,
        ["--nnodes", 7, *NASTY],
        nnodes=(1, 3),
        head="fe80::1",
        port=1234,
        job="digits-2",
        restarts=5,
        local_addr="10.0.0.2",
    )
    options = parse_args(command.argv[3:])
    config, _, arguments = config_from_args(options)
    assert arguments[1:] == ["train.py", "--nnodes", "7", *NASTY]
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (1, 3, 2)
    assert (config.rdzv_backend, config.run_id) == ("c10d", "digits-2")
    assert (config.rdzv_endpoint, config.max_restarts) == ("[fe80::1]:1234", 5)
    assert config.local_addr == "10.0.0.2"
    assert command.environment == {OWN_STORE: "1"}


@pytest.mark.parametrize("restarts", [0, 1, 3])
@pytest.mark.parametrize("nnodes", [1, 2, (2, 2), (1, 2), (2, 5)])
def test_each_start_has_its_own_store_wherever_there_can_be_a_second_one(
    script, nnodes, restarts
):
    command = d2l.torchrun_command(
        script, 2, nnodes=nnodes, head="node-a", restarts=restarts
    )
    can_start_again = restarts > 0 or nnodes in [(1, 2), (2, 5)]
    assert command.environment == ({OWN_STORE: "1"} if can_start_again else {})


@needs_bash
def test_what_is_pasted_is_what_is_run(script, tmp_path):
    command = d2l.torchrun_command(
        script, 2, NASTY, nnodes=2, head="node-a", restarts=1, interface="eth0"
    )
    show = f'printf "%s\\0" "${OWN_STORE}" "$GLOO_SOCKET_IFNAME" "$@"'
    text = f"torchrun() {{ {show}; }}\n{command}\n"
    done = subprocess.run(["bash", "-c", text], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == ["1", "eth0", *command.argv[3:]]
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"nnodes": 0}, ValueError, "number of machines must be at least 1, but got 0"),
        ({"nnodes": "1:2"}, TypeError, r"such as 2, but got '1:2' \(str\)"),
        ({"nnodes": (2, 1)}, ValueError, "machines must be at least 2, but got 1"),
        ({"nnodes": (1, 2, 3)}, ValueError, r"fewest and the most such as \(1, 2\)"),
        ({"nproc": 0}, ValueError, "number of processes must be at least 1, but got 0"),
        (
            {"head": "node a"},
            ValueError,
            "'node-a' or '10.0.0.1', but got 'node a'",
        ),
        ({"head": "a:29400"}, ValueError, "but got 'a:29400'"),
        ({"head": "-a"}, ValueError, "but got '-a'"),
        ({"head": 1}, ValueError, "but got 1"),
        ({"local_addr": "b\n"}, ValueError, r"local_addr must be .* but got 'b\\n'"),
        ({"port": 70000}, ValueError, "at most 65535, but got 70000"),
        ({"job": "it's"}, ValueError, """job must consist of .*, but got "it's"."""),
        ({"job": "a\nb"}, ValueError, r"but got 'a\\nb'"),
        ({"interface": "eth0;"}, ValueError, "but got 'eth0;'"),
        (
            {"restarts": -1},
            ValueError,
            "number of restarts must be at least 0, but got -1",
        ),
        ({"args": "--lr 1"}, TypeError, "a list such as .*, but got '--lr 1'"),
        ({"script": "none.py"}, FileNotFoundError, "no script 'none.py' in /"),
    ],
)
def test_a_command_that_makes_no_sense(options, kind, sentence, script):
    good = {"script": script, "nproc": 1, "nnodes": 2, "head": "node-a"}
    with pytest.raises(kind, match=sentence) as caught:
        d2l.torchrun_command(**good | options)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- Slurm

FAKES = {
    "scontrol": """#!/bin/sh
case $1 in
    show) echo node-7; echo node-8 ;;
    requeue) echo "requeue $2" >> said ;;
esac
""",
    # Like Slurm's, it ends the job some time after it was put back into the queue.
    "srun": """#!/bin/sh
printf '%s\\0' "$@" > called
echo $OMP_NUM_THREADS > threads
while [ -e wait ] && [ ! -e said ]; do sleep 0.01; done
exit ${CODE:-0}
""",
}


@pytest.fixture
def slurm(tmp_path, script, monkeypatch):
    """A function that starts a batch script where Slurm's programs are imitations."""
    (tmp_path / "bin").mkdir()
    for name, text in FAKES.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node-[7-8]")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("SLURM_JOB_ID", "123456")

    def start(text: str) -> subprocess.Popen:
        return subprocess.Popen(["bash", "-c", text], start_new_session=True)

    return start


@needs_bash
def test_a_slurm_job_runs_torchrun_on_each_machine(slurm, script):
    text = d2l.slurm_script(
        script, 4, NASTY, nnodes=2, time="04:00:00", cpus=16, restarts=3
    )
    assert slurm(text).wait(PATIENCE) == 0
    words = Path("called").read_text().split("\0")[:-1]
    assert words == [
        *("--kill-on-bad-exit", "--cpus-per-task=16", "torchrun", "--nnodes=2"),
        *("--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=node-7:23456"),
        *("--rdzv-id=123456", "--max-restarts=3", "train.py", *NASTY),
    ]
    assert Path("threads").read_text() == "4\n"
    assert not Path("no").exists()


@needs_bash
@pytest.mark.parametrize("requeue", [True, False])
def test_a_slurm_job_fails_as_its_training_does(slurm, script, requeue, monkeypatch):
    monkeypatch.setenv("CODE", "3")
    text = d2l.slurm_script(script, 1, nnodes=2, time="04:00:00", requeue=requeue)
    assert slurm(text).wait(PATIENCE) != 0
    assert not Path("said").exists()


@needs_bash
def test_a_slurm_job_is_queued_again_before_time_is_up(slurm, script):
    Path("wait").touch()
    job = slurm(d2l.slurm_script(script, 1, nnodes=2, time="04:00:00"))
    wait_until(lambda: Path("threads").exists() or job.poll() is not None)
    assert job.poll() is None
    job.send_signal(signal.SIGUSR1)
    assert job.wait(PATIENCE) == 0
    assert Path("said").read_text() == "requeue 123456\n"


@needs_bash
def test_slurm_scripts_are_good_bash(script):
    for options in ({}, {"cpus": 8}, {"requeue": False}, {"gpus": 0, "restarts": 1}):
        text = d2l.slurm_script(script, 2, NASTY, nnodes=2, time="04:00:00", **options)
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        if shutil.which("shellcheck"):
            subprocess.run(
                ["shellcheck", "--severity=warning", "-"],
                input=text,
                text=True,
                check=True,
            )


def test_what_slurm_is_asked_for(script):
    def asked(**options) -> list[str]:
        text = d2l.slurm_script(script, 2, nnodes=3, time="1-00:00:00", **options)
        head, _, _ = text.partition("\nset ")
        first, *lines = head.splitlines()
        assert first == "#!/usr/bin/env bash"
        return [line.removeprefix("#SBATCH --") for line in lines]

    usual = ["job-name=train", "nodes=3", "ntasks-per-node=1", "gpus-per-node=2"]
    rest = ["time=1-00:00:00", "output=%x-%j.out"]
    again = ["requeue", "open-mode=append", "signal=B:USR1@120"]
    assert asked() == [*usual, *rest, *again]
    assert asked(requeue=False) == [*usual, *rest]
    assert asked(gpus=0, cpus=8, requeue=False) == [
        *usual[:3],
        "cpus-per-task=8",
        *rest,
    ]
    assert asked(options={"partition": "gpu"})[-1] == "partition=gpu"


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"nnodes": 0}, ValueError, "number of machines must be at least 1, but got 0"),
        ({"nnodes": (1, 2)}, TypeError, r"such as 2, but got \(1, 2\) \(tuple\)"),
        ({"time": "4h"}, ValueError, "as '04:00:00'.*, but got '4h'"),
        ({"time": "04:00"}, ValueError, "but got '04:00'"),  # four minutes, for Slurm
        ({"time": 60}, ValueError, "but got 60"),
        ({"job": "a b"}, ValueError, "but got 'a b'"),
        ({"cpus": 0}, ValueError, "number of cores must be at least 1, but got 0"),
        ({"gpus": -1}, ValueError, "number of GPUs must be at least 0, but got -1"),
        ({"output": "a\n#SBATCH"}, ValueError, r"--output must be .* but got 'a\\n#SB"),
        (
            {"options": {"x": "a b"}},
            ValueError,
            "sbatch's --x must be .*, but got 'a b'",
        ),
        (
            {"options": {"time": "1"}},
            ValueError,
            "not set otherwise, .*, but got 'time'",
        ),
        ({"options": {"a\n": "1"}}, ValueError, r"but got 'a\\n'"),
        ({"script": "none.py"}, FileNotFoundError, "no script 'none.py' in /"),
    ],
)
def test_a_slurm_script_that_makes_no_sense(options, kind, sentence, script):
    good = {"script": script, "nproc": 1, "nnodes": 2, "time": "04:00:00"}
    with pytest.raises(kind, match=sentence) as caught:
        d2l.slurm_script(**good | options)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- the real thing


@pytest.fixture(scope="module")
def environment():
    """What the ranks need, wherever they are."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    quiet = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return kept | PATH | NO_GPUS | quiet | {"D2L_GPU_VIRTUAL": "2"}


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory, environment):
    """The weights of the same training with two ranks on one machine."""
    folder = tmp_path_factory.mktemp("one")
    command = [*("-m", "torch.distributed.run", "--standalone"), "--nproc-per-node=2"]
    subprocess.run(
        [sys.executable, *command, SCRIPT, folder],
        env=environment,
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=PATIENCE,
    )
    return torch.load(folder / "result.pt")["net"]


def check_result(folder: Path, expected: dict) -> dict:
    result = torch.load(folder / "result.pt")
    assert result["net"].keys() == expected.keys()
    assert all(torch.equal(result["net"][name], expected[name]) for name in expected)
    return result


def start(command, environment: dict, machine=None) -> subprocess.Popen:
    """Start the agent of a machine, or one of those on this machine."""
    argv = command.argv if machine is None else machine.command(*command.argv)
    return subprocess.Popen(
        argv,
        env=environment | command.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(agents: list[subprocess.Popen]) -> None:
    """Wait until all agents have ended well."""
    try:
        for agent in agents:
            said, _ = agent.communicate(timeout=PATIENCE)
            assert agent.returncode == 0, said
    finally:
        for agent in agents:
            agent.terminate()  # and its ranks with it
            agent.communicate()


@pytest.mark.all
@needs_torchrun
def test_two_agents_on_this_machine(tmp_path, environment, on_one_machine):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    here = {"head": "127.0.0.1", "local_addr": "127.0.0.1", "port": port}
    command = d2l.torchrun_command(SCRIPT, 1, [tmp_path], nnodes=2, **here)
    wait_for([start(command, environment) for _ in range(2)])
    check_result(tmp_path, on_one_machine)


@needs_torchrun
@needs_machines
@pytest.mark.all
def test_two_machines_train_as_one(tmp_path, environment, on_one_machine):
    command = d2l.torchrun_command(SCRIPT, 1, [tmp_path], nnodes=2, head="node-a")
    with two_machines() as machines:
        wait_for([start(command, environment, machine) for machine in machines])
    result = check_result(tmp_path, on_one_machine)
    assert sorted(result["hosts"]) == ["node-a", "node-b"]


@pytest.mark.weekly
@needs_torchrun
@needs_machines
def test_a_machine_that_crashes_comes_back(tmp_path, environment, on_one_machine):
    command = d2l.torchrun_command(
        SCRIPT, 1, [tmp_path, "--stop-at", 4], nnodes=2, head="node-a", restarts=1
    )
    # A machine that is not heard of is given up after five seconds, not fifteen.
    beats = (["--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=5"], "")
    command = replace(command, parts=[beats, *command.parts])
    with two_machines() as (head, other):
        agents = [start(command, environment, machine) for machine in (head, other)]
        wait_until(
            lambda: (
                (tmp_path / "stopped").exists()
                or any(agent.poll() is not None for agent in agents)
            )
        )
        assert agents[0].poll() is agents[1].poll() is None
        other.crash()
        assert agents.pop().wait(PATIENCE) != 0
        agents.append(start(command, environment, other))
        wait_for(agents)
    result = check_result(tmp_path, on_one_machine)
    assert result["first"] == 4
    wait_until(lambda: not processes_with(str(tmp_path)))


# ---------------------------------------------------------------- the two machines


@needs_machines
def test_machines_have_names_and_addresses_and_reach_each_other():
    with two_machines() as machines:
        ask = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
        for machine, other in zip(machines, reversed(machines), strict=True):
            assert machine.run("hostname") == f"{machine.name}\n"
            answer = machine.run(sys.executable, "-c", ask, other.name)
            assert answer == f"{other.address}\n"
        hear = "import socket; socket.create_server(('', 9)).accept()[0].sendall(b'hi')"
        call = (
            f"import socket; s = socket.create_connection(({machines[0].address!r}, 9))"
        )
        hearing = subprocess.Popen(machines[0].command(sys.executable, "-c", hear))
        wait_until(lambda: "LISTEN" in machines[0].run(*_sockets()))
        heard = machines[1].run(sys.executable, "-c", f"{call}; print(s.recv(2))")
        assert heard == "b'hi'\n"
        assert hearing.wait(PATIENCE) == 0
        before = Path("/etc/hosts").read_text()
        assert "node-b" in machines[0].run("cat", "/etc/hosts")
    assert Path("/etc/hosts").read_text() == before
    assert "node-b" not in before


def _sockets() -> list[str]:
    """A command that lists listening sockets, without ss or netstat."""
    code = (
        "print(['LISTEN' for line in open('/proc/net/tcp') if line.split()[3] == '0A'])"
    )
    return [sys.executable, "-c", code]


@needs_machines
def test_nothing_outlives_the_machines(tmp_path):
    tag = str(tmp_path / "sleeper")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)", tag]
    with two_machines() as (first, second):
        processes = [
            subprocess.Popen(machine.command(*sleep), start_new_session=True)
            for machine in (first, second)
        ]
        # What entered the machine waits outside.
        wait_until(lambda: len(processes_with(tag)) == 4)
        second.crash()
        assert processes[1].wait(PATIENCE) != 0
        assert second.run("hostname") == "node-b\n"  # it is there again
        assert processes[0].poll() is None
    assert processes[0].wait(PATIENCE) != 0
    wait_until(lambda: not processes_with(tag))


@needs_machines
def test_nothing_outlives_a_killed_caller(tmp_path):
    tag = str(tmp_path / "sleeper")
    code = f"""if True:
        import subprocess, sys, time
        from tests.helpers.namespaces import two_machines
        with two_machines() as machines:
            sleep = [sys.executable, "-c", "import time; time.sleep(600)", {tag!r}]
            for machine in machines:
                subprocess.Popen(machine.command(*sleep))
            time.sleep(600)
    """
    caller = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **PATH})
    sleeper = f"{sys.executable} -c import time; time.sleep(600) {tag}"
    wait_until(lambda: len(processes_with(sleeper)) >= 2 or caller.poll() is not None)
    assert caller.poll() is None
    caller.kill()
    caller.wait()
    wait_until(lambda: not processes_with(tag))
