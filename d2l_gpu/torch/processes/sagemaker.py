"""Training scripts as Amazon SageMaker jobs: how to submit one, and what it runs.

Nothing is submitted here, and no account is needed. The names are those of version 2 of
SageMaker's Python SDK, the last with framework estimators, and of the package
sagemaker-training 5, which starts the script inside the job's containers.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from d2l_gpu.common.arguments import check_integer, check_name, check_script
from d2l_gpu.vgpu import Table

CHECKPOINTS = "/opt/ml/checkpoints"
"""The container folder that SageMaker copies to S3, and back to a new container."""

_FOLDER = "/opt/ml"
_PORT = "7777"


@dataclass(frozen=True)
class Container:
    """What the script finds on one machine of a job.

    Attributes:
        environment: environment variables; torchrun adds those of each rank.
        arguments: arguments of the script, from the job's hyperparameters.
        command: the command that starts the ranks of this machine.
    """

    environment: Mapping[str, str]
    arguments: list[str]
    command: list[str]
    _meanings: Mapping[str, str] = field(repr=False)

    def table(self) -> Table:
        """Return a table of the variables and what they mean."""
        rows = [
            [name, value, self._meanings[name]]
            for name, value in self.environment.items()
        ]
        return Table(["variable", "value", "meaning"], rows)

    def __repr__(self) -> str:
        return f"{self.table()!r}\n\n{shlex.join(self.command)}"

    def _repr_html_(self) -> str:
        command = Table(["what is run"], [[shlex.join(self.command)]])
        return self.table()._repr_html_() + command._repr_html_()


@dataclass(frozen=True)
class SageMakerJob:
    """A training job: ``print(job)`` shows the program that submits it.

    Attributes:
        script: the file that the job runs.
        hyperparameters: arguments of the script, by name.
        channels: the data's locations, by the name of the folder in which the script
            finds them.
        settings: arguments of the SDK's estimator.
    """

    script: Path
    hyperparameters: Mapping[str, Any]
    channels: Mapping[str, str]
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        lines = [
            '"""Submit a training job: needs pip install \'sagemaker<3\'."""',
            "",
            "from sagemaker.pytorch import PyTorch",
            "",
            "estimator = PyTorch(",
            *(f"    {name}={value!r}," for name, value in self.settings.items()),
            ")",
            f"estimator.fit({dict(self.channels) if self.channels else ''})",
            "",
        ]
        return "\n".join(lines)

    def container(self, machine: int = 0, *, num_gpus: int) -> Container:
        """Return what the script finds on one of the job's machines.

        Args:
            machine: which machine, counted from 0.
            num_gpus: number of GPUs, and of ranks, on a machine of the job's type.
        Raises:
            TypeError, ValueError: an argument is invalid.
        """
        count = self.settings["instance_count"]
        check_integer("A machine", machine, least=0)
        if machine >= count:
            raise ValueError(
                f"The job has {count} machines, counted from 0, so there is no machine "
                f"{machine}."
            )
        check_integer("The number of GPUs", num_gpus, least=1, example=4)
        hosts = [f"algo-{i + 1}" for i in range(count)]
        arguments = _arguments(self.hyperparameters)
        variables = {
            "HOSTS": (hosts, "the machines"),
            "CURRENT_HOST": (hosts[machine], "this one"),
            "NUM_GPUS": (num_gpus, "its GPUs"),
            "USER_ENTRY_POINT": (self.script.name, "the script"),
            "HPS": (dict(self.hyperparameters), "its arguments"),
            "MODEL_DIR": (f"{_FOLDER}/model", "what is in it at the end goes to S3"),
            "OUTPUT_DATA_DIR": (f"{_FOLDER}/output/data", "what else is to go there"),
            "CHANNELS": (sorted(self.channels), "the names of the data"),
        }
        for name in sorted(self.channels):
            folder = f"{_FOLDER}/input/data/{name}"
            variables[f"CHANNEL_{name.upper()}"] = folder, f"the data {name!r}"
        command = ["torchrun", "--nnodes", str(count)]
        command += ["--nproc_per_node", str(num_gpus)]
        if count > 1:
            command += ["--master_addr", hosts[0], "--master_port", _PORT]
            command += ["--node_rank", str(machine)]
        return Container(
            {f"SM_{name}": _text(value) for name, (value, _) in variables.items()},
            arguments,
            [*command, self.script.name, *arguments],
            {f"SM_{name}": meaning for name, (_, meaning) in variables.items()},
        )


def sagemaker_job(
    script: str | Path,
    hyperparameters: Mapping[str, Any] | None = None,
    *,
    instance_count: int,
    instance_type: str,
    role: str,
    checkpoints: str | None = None,
    channels: Mapping[str, str] | None = None,
    framework_version: str = "2.8.0",
    py_version: str = "py312",
    image_uri: str | None = None,
    job: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> SageMakerJob:
    """Describe a SageMaker training job that runs a script with torchrun.

    The script's whole folder is uploaded with it. Packages listed in its
    ``requirements.txt`` are installed before the script starts.

    Args:
        script: the file to run.
        hyperparameters: arguments of the script: ``{'epochs': 3}`` is passed as
            ``--epochs 3``, True as ``--name True``.
        instance_count: number of machines.
        instance_type: type of the machines, such as ``'ml.g5.12xlarge'``; they need
            GPUs.
        role: name or ARN of the IAM role that may use the data.
        checkpoints: S3 folder, such as ``'s3://bucket/digits'``, that SageMaker keeps
            in sync with ``/opt/ml/checkpoints``, even in a new job.
        channels: the data's locations: ``{'training': 's3://bucket/data'}``.
        framework_version: full PyTorch version of a container that Amazon maintains.
        py_version: Python version of that container.
        image_uri: another container, for other versions.
        job: prefix of the job's name; default: the script's name.
        options: more arguments of the estimator: ``{'max_run': 3600}``.
    Returns:
        The job; print it to get the program that submits it.
    Raises:
        FileNotFoundError: there is no such script.
        TypeError, ValueError: an argument is invalid.
    """
    path = check_script(script)
    if path.suffix != ".py":
        raise ValueError(
            f"SageMaker runs only scripts named .py with torchrun, but got {path}."
        )
    check_integer("The number of machines", instance_count, least=1, example=2)
    _check(
        re.fullmatch(r"ml\.[gp][a-z0-9-]*\.[a-z0-9]+", str(instance_type)),
        "SageMaker's torchrun needs machines with GPUs, of types such as "
        f"'ml.g5.12xlarge' and 'ml.p4d.24xlarge', but got {instance_type!r}.",
    )
    _check(
        isinstance(role, str) and re.fullmatch(r"[\w+=,.@:/-]+", role, re.ASCII),
        f"The role must be the name or the ARN of a role in IAM, but got {role!r}.",
    )
    hyperparameters, channels = dict(hyperparameters or {}), dict(channels or {})
    for name, value in hyperparameters.items():
        _check_hyperparameter(name, value)
    for name, place in channels.items():
        check_name("A channel", name)
        _check_place(place)
    job = check_name("job", path.stem.replace("_", "-") if job is None else job)
    _check(
        re.fullmatch(r"[A-Za-z0-9-]+", job),
        f"The name of a job may contain only letters, digits and '-', but got {job!r}.",
    )
    settings: dict[str, Any] = {
        "entry_point": path.name,
        "source_dir": str(path.parent),
        "role": role,
        "instance_count": instance_count,
        "instance_type": instance_type,
    }
    if image_uri is None:
        _check(
            re.fullmatch(r"\d+\.\d+\.\d+", str(framework_version)),
            "SageMaker needs PyTorch's version in full, such as '2.8.0', but got "
            f"{framework_version!r}.",
        )
        _check(
            re.fullmatch(r"py3\d+", str(py_version)),
            "Python's version must be written as SageMaker does, such as 'py312' for "
            f"Python 3.12, but got {py_version!r}.",
        )
        settings["framework_version"] = framework_version
        settings["py_version"] = py_version
    else:
        settings["image_uri"] = image_uri
    settings["distribution"] = {"torch_distributed": {"enabled": True}}
    settings["hyperparameters"] = hyperparameters
    settings["base_job_name"] = job
    if checkpoints is not None:
        _check_place(checkpoints)
        settings["checkpoint_s3_uri"] = checkpoints
        settings["checkpoint_local_path"] = CHECKPOINTS
    for name, value in (options or {}).items():
        _check(
            str(name).isidentifier() and name not in settings,
            "More arguments of the estimator must have names that are not set "
            f"otherwise, such as 'max_run', but got {name!r}.",
        )
        settings[name] = value
    return SageMakerJob(path, hyperparameters, channels, settings)


def _arguments(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return the script's arguments as the container derives them, sorted by name."""
    arguments = []
    for name in sorted(hyperparameters):
        dashes = "-" if len(name) == 1 else "--"
        arguments += [dashes + name, str(hyperparameters[name])]
    return arguments


def _text(value: Any) -> str:
    """Return a variable's value: a string unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# ------------------------------------------------------------------ checks


def _check(true: object, sentence: str) -> None:
    if not true:
        raise ValueError(sentence)


def _check_place(place: str) -> None:
    _check(
        isinstance(place, str) and re.fullmatch(r"s3://[^\s'\"\\]+", place),
        f"A location in S3 must be written as 's3://bucket/folder', but got {place!r}.",
    )


def _check_hyperparameter(name: str, value: Any) -> None:
    _check(
        isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name),
        "A hyperparameter must have a name that can follow '--', such as "
        f"'batch_size', but got {name!r}.",
    )
    if not isinstance(value, str | int | float):
        raise TypeError(
            f"The hyperparameter {name} must be a number or a string, but got "
            f"{value!r} ({type(value).__name__})."
        )
