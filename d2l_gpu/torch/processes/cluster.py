"""Training scripts on several machines: a command to type on each, or a Slurm job.

Nothing is started here. These functions return text that starts a script elsewhere, the
same script that ``launch`` or ``torchrun --standalone`` runs on one machine.
"""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d2l_gpu.common.arguments import (
    PORTS,
    check_arguments,
    check_host,
    check_integer,
    check_name,
    check_script,
)
from d2l_gpu.vgpu import Table

PORT = 29400  # torchrun's default for a rendezvous

# By default, torchrun keeps one store across restarts, and announces its address only
# at the first start. A machine that comes back later waits a minute for the address,
# and fails (torch 2.13, RendezvousStoreInfo). With this variable, each start has its
# own store.
OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


@dataclass(frozen=True)
class Command:
    """A command with an explanation of each part.

    ``print(command)`` shows the text to paste into a terminal. As the last line of a
    notebook cell, the command displays as a table of what its parts mean.

    Attributes:
        environment: the environment variables that it sets.
        parts: words that belong together, and what they mean.
    """

    environment: Mapping[str, str]
    parts: Sequence[tuple[Sequence[str], str]]

    @property
    def argv(self) -> list[str]:
        """The argument list for ``subprocess``, with this process's Python."""
        words = [word for part, _ in self.parts for word in part]
        return [sys.executable, "-m", "torch.distributed.run", *words]

    def table(self) -> Table:
        """Return a table of what each part means."""
        return Table(["part", "meaning"], self._rows())

    def _rows(self) -> list[list[str]]:
        return [
            *(
                [f"{name}={shlex.quote(value)}", _VARIABLES[name]]
                for name, value in self.environment.items()
            ),
            ["torchrun", "starts the ranks of this machine, and watches them"],
            *([shlex.join(part), meaning] for part, meaning in self.parts),
        ]

    def __str__(self) -> str:
        return _lines([text for text, _ in self._rows()])

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


_VARIABLES = {
    OWN_STORE: "a new store every time the ranks start",
    "GLOO_SOCKET_IFNAME": "the network interface that gloo uses",
    "NCCL_SOCKET_IFNAME": "the network interface that NCCL uses",
}


def torchrun_command(
    script: str | Path,
    nproc: int,
    args: Sequence[Any] = (),
    *,
    nnodes: int | tuple[int, int],
    head: str,
    port: int = PORT,
    job: str | None = None,
    restarts: int = 0,
    interface: str | None = None,
    local_addr: str | None = None,
) -> Command:
    """Return the command to type on each of several machines to run a script.

    It is the same on all machines, and the order in which they start doesn't matter.
    All machines need the script and its data, under the same path, and their clocks
    must agree to within ten seconds.

    Args:
        script: the file to run.
        nproc: number of processes per machine, one for each GPU.
        args: arguments of the script; anything but a string is converted to one.
        nnodes: number of machines, or the minimum and the maximum, such as ``(1, 2)``.
            With two numbers, the run waits half a minute for machines, starts with
            those that have joined, if there are enough, and restarts when a machine
            joins or leaves.
        head: name or address of the machine where the others meet. It is one of them,
            and all of them must be able to reach it.
        port: TCP port on that machine.
        job: name of the run, the same on all machines; default: the script's. Runs with
            other names may use the same head.
        restarts: how often all ranks are restarted after a failure.
        interface: network interface that connects the machines, if gloo and NCCL don't
            find it by themselves.
        local_addr: name or address at which the others reach *this* machine, if its
            host name doesn't work. Only this part differs between machines.
    Returns:
        The command; print it to paste it.
    Raises:
        FileNotFoundError: there is no such script.
        TypeError, ValueError: an argument is invalid.
    """
    path = check_script(script)
    check_integer("The number of processes", nproc, least=1, example=2)
    arguments = check_arguments(args)
    fewest, most = _check_nnodes(nnodes)
    check_host("head", head)
    _check_port(port)
    job = check_name("job", path.stem if job is None else job)
    check_integer("The number of restarts", restarts, least=0, example=3)

    machines = f"{most} machines; it waits until all have joined"
    if fewest < most:
        machines = f"{fewest} to {most}: it restarts when one joins or leaves"
    elif most == 1:
        machines = "1 machine"
    many = str(most) if fewest == most else f"{fewest}:{most}"
    endpoint = f"[{head}]:{port}" if ":" in head else f"{head}:{port}"
    parts = [
        ([f"--nnodes={many}"], machines),
        ([f"--nproc-per-node={nproc}"], "ranks on each machine, one for each GPU"),
        (["--rdzv-backend=c10d"], "the machines meet at a store on the head"),
        ([f"--rdzv-endpoint={endpoint}"], "the head: all machines have to reach it"),
        ([f"--rdzv-id={job}"], "the name of the run, the same on all machines"),
    ]
    if restarts:
        meaning = "how often all ranks restart after a failure"
        parts.append(([f"--max-restarts={restarts}"], meaning))
    if local_addr is not None:
        check_host("local_addr", local_addr)
        meaning = "how the others reach this machine: differs on each"
        parts.append(([f"--local-addr={local_addr}"], meaning))
    parts.append(([str(path), *arguments], "the script, with its arguments"))
    environment = {}
    if restarts or fewest < most:
        environment[OWN_STORE] = "1"
    if interface is not None:
        for library in ("GLOO", "NCCL"):
            environment[f"{library}_SOCKET_IFNAME"] = check_name("interface", interface)
    return Command(environment, parts)


def slurm_script(
    script: str | Path,
    nproc: int,
    args: Sequence[Any] = (),
    *,
    nnodes: int,
    time: str,
    job: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    restarts: int = 0,
    requeue: bool = True,
    output: str = "%x-%j.out",
    options: Mapping[str, str] | None = None,
) -> str:
    """Return a Slurm batch script that runs a script on several machines.

    Save it, activate the environment that has PyTorch, and submit it with ``sbatch``.
    Two minutes before its time limit, the job is requeued under the same number, so a
    script that saves checkpoints continues from the last one.

    Args:
        script: the file to run, on a file system that all machines share.
        nproc: number of processes per machine.
        args: arguments of the script; anything but a string is converted to one.
        nnodes: number of machines.
        time: time limit of the job, such as ``'04:00:00'`` or ``'1-12:00:00'``.
        job: name of the job; default: the script's.
        cpus: number of cores per machine; default: Slurm's default.
        gpus: number of GPUs per machine; default: ``nproc``; 0 for none.
        restarts: how often all ranks are restarted after a failure.
        requeue: whether to requeue the job at the time limit or when a machine fails.
        output: file for the job's output; ``%x`` is its name, ``%j`` its number.
        options: more sbatch options by their long names: ``{'partition': 'gpu'}``.
    Returns:
        The text of the batch script.
    Raises:
        FileNotFoundError: there is no such script.
        TypeError, ValueError: an argument is invalid.
    """
    path = check_script(script)
    check_integer("The number of processes", nproc, least=1, example=2)
    arguments = check_arguments(args)
    check_integer("The number of machines", nnodes, least=1, example=2)
    check_integer("The number of restarts", restarts, least=0, example=3)
    if not isinstance(time, str) or not _TIME.fullmatch(time):
        raise ValueError(
            "Slurm's time limit must be written as hours, minutes and seconds, such "
            f"as '04:00:00', or with days, such as '1-12:00:00', but got {time!r}."
        )
    asked = {
        "job-name": check_name("job", path.stem if job is None else job),
        "nodes": nnodes,
        "ntasks-per-node": 1,  # torchrun, which starts the ranks
    }
    gpus = nproc if gpus is None else gpus
    check_integer("The number of GPUs", gpus, least=0, example=2)
    if gpus:
        asked["gpus-per-node"] = gpus
    if cpus is not None:
        check_integer("The number of cores", cpus, least=1, example=8)
        asked["cpus-per-task"] = cpus
    asked |= {"time": time, "output": output}
    if requeue:
        asked |= {"requeue": None, "open-mode": "append", "signal": "B:USR1@120"}
    for name, value in (options or {}).items():
        if not re.fullmatch(r"[a-z]+(-[a-z]+)*", str(name)) or name in asked:
            raise ValueError(
                "More options for sbatch must have long names that are not set "
                f"otherwise, such as 'partition', but got {name!r}."
            )
        asked[name] = value
    for name in ("output", *(options or {})):
        if not isinstance(asked[name], str) or not _VALUE.fullmatch(asked[name]):
            raise ValueError(
                f"The value of sbatch's --{name} must be a string without spaces and "
                f"quotes, but got {asked[name]!r}."
            )
    return _slurm_text(nproc, restarts, [str(path), *arguments], asked)


_TIME = re.compile(r"(\d+-)?\d{1,3}:[0-5]\d:[0-5]\d", re.ASCII)
_VALUE = re.compile(r"[^\s'\"\\#`$]+")


def _slurm_text(
    nproc: int, restarts: int, command: Sequence[str], asked: Mapping[str, Any]
) -> str:
    lines = ["#!/usr/bin/env bash"]
    for name, value in asked.items():
        lines.append(f"#SBATCH --{name}" + ("" if value is None else f"={value}"))
    cores = asked.get("cpus-per-task")
    lines += [
        "set -eu",
        "",
        "# The first of the machines that Slurm has chosen is the head. Jobs that",
        "# share it have ports of their own.",
        'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "endpoint=${hosts%%$'\\n'*}:$((20000 + SLURM_JOB_ID % 10000))",
        "",
    ]
    if cores:
        lines.append(f"export OMP_NUM_THREADS={max(1, cores // nproc)}")
    if restarts:
        lines.append(f"export {OWN_STORE}=1")
    parts = [
        # Since Slurm 22.05, srun doesn't inherit this from the batch job.
        "srun --kill-on-bad-exit" + (f" --cpus-per-task={cores}" if cores else ""),
        'torchrun --nnodes="$SLURM_JOB_NUM_NODES"',
        f"--nproc-per-node={nproc}",
        "--rdzv-backend=c10d",
        '--rdzv-endpoint="$endpoint"',
        '--rdzv-id="$SLURM_JOB_ID"',
        *([f"--max-restarts={restarts}"] if restarts else []),
        shlex.join(command),
    ]
    if "requeue" not in asked:
        return "\n".join([*lines, _lines(parts), ""])
    lines += [
        "# Slurm sends USR1 before time is up. Back in the queue, the job begins again",
        "# under the same number, and the script goes on from its last checkpoint.",
        "trap 'scontrol requeue \"$SLURM_JOB_ID\"' USR1",
        "",
        _lines(parts) + " &",
        "wait $! || wait $!  # the signal ends the first wait only",
        "",
    ]
    return "\n".join(lines)


def _lines(parts: Sequence[str]) -> str:
    """Return a command with one part per line."""
    return " \\\n    ".join(parts)


# ------------------------------------------------------------------ checks


def _check_nnodes(nnodes: int | tuple[int, int]) -> tuple[int, int]:
    if not isinstance(nnodes, tuple):
        check_integer("The number of machines", nnodes, least=1, example=2)
        return nnodes, nnodes
    if len(nnodes) != 2:
        raise ValueError(
            "The number of machines must be an integer, or the fewest and the most "
            f"such as (1, 2), but got {nnodes!r}."
        )
    fewest, most = nnodes
    check_integer("The smallest number of machines", fewest, least=1)
    check_integer("The largest number of machines", most, least=fewest, example=2)
    return fewest, most


def _check_port(port: int) -> None:
    check_integer("A port", port, least=1, example=PORT)
    if port not in PORTS:
        raise ValueError(f"A port must be at most {PORTS[-1]}, but got {port}.")
