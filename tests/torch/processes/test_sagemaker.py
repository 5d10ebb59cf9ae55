"""Jobs of SageMaker: the program that submits one, and what the script finds there."""

import ast
import inspect
import json
import sys
import types
from pathlib import Path

import pytest

from d2l_gpu import torch as d2l

JOB = {
    "instance_count": 2,
    "instance_type": "ml.g5.12xlarge",
    "role": "arn:aws:iam::123456789012:role/training",
}
VALUES = {"epochs": 3, "lr": 0.1, "data": 'it\'s "a"\ntext $HOME', "fast": True, "k": 2}


@pytest.fixture(autouse=True)
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("code").mkdir()
    path = Path("code/train_ddp.py")
    path.write_text("")
    return path


@pytest.fixture
def submitted(monkeypatch):
    """A function that runs a program with an imitation of the SDK."""

    def run(program: str) -> tuple[dict, tuple]:
        seen = {}

        class PyTorch:
            def __init__(self, **settings):
                seen["settings"] = settings

            def fit(self, *inputs):
                seen["inputs"] = inputs

        module = types.ModuleType("sagemaker.pytorch")
        module.PyTorch = PyTorch
        monkeypatch.setitem(sys.modules, "sagemaker", types.ModuleType("sagemaker"))
        monkeypatch.setitem(sys.modules, "sagemaker.pytorch", module)
        exec(compile(program, "submit.py", "exec"), {})
        return seen["settings"], seen["inputs"]

    return run


def test_the_program_submits_the_job(script, submitted):
    job = d2l.sagemaker_job(
        script,
        VALUES,
        checkpoints="s3://bucket/digits",
        channels={"training": "s3://bucket/data"},
        options={"max_run": 3600},
        **JOB,
    )
    settings, inputs = submitted(str(job))
    assert settings == {
        **JOB,
        "entry_point": "train_ddp.py",
        "source_dir": "code",
        "framework_version": "2.8.0",
        "py_version": "py312",
        "distribution": {"torch_distributed": {"enabled": True}},
        "hyperparameters": VALUES,
        "base_job_name": "train-ddp",
        "checkpoint_s3_uri": "s3://bucket/digits",
        "checkpoint_local_path": "/opt/ml/checkpoints",
        "max_run": 3600,
    }
    assert inputs == ({"training": "s3://bucket/data"},)


def test_a_job_without_data_and_with_a_container_of_its_own(script, submitted):
    image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/pytorch:2.13.0"
    settings, inputs = submitted(str(d2l.sagemaker_job(script, image_uri=image, **JOB)))
    assert settings["image_uri"] == image
    assert not {"framework_version", "py_version", "checkpoint_s3_uri"} & set(settings)
    assert inputs == ()


def test_the_sdk_knows_the_names(script):
    pytorch = pytest.importorskip("sagemaker.pytorch", reason="needs sagemaker<3")
    places = {"checkpoints": "s3://bucket/a", "channels": {"data": "s3://bucket/b"}}
    program = str(d2l.sagemaker_job(script, VALUES, **places, **JOB))
    call = next(n for n in ast.walk(ast.parse(program)) if isinstance(n, ast.Call))
    known = set()
    for cls in pytorch.PyTorch.__mro__:
        known |= set(inspect.signature(cls.__init__).parameters)
    assert {keyword.arg for keyword in call.keywords} <= known


def test_what_the_script_finds_on_each_machine(script):
    places = {"training": "s3://bucket/a", "test": "s3://bucket/b"}
    job = d2l.sagemaker_job(script, VALUES, channels=places, **JOB)
    second = job.container(1, num_gpus=4)
    assert second.environment == {
        "SM_HOSTS": '["algo-1","algo-2"]',
        "SM_CURRENT_HOST": "algo-2",
        "SM_NUM_GPUS": "4",
        "SM_USER_ENTRY_POINT": "train_ddp.py",
        "SM_HPS": json.dumps(VALUES, sort_keys=True, separators=(",", ":")),
        "SM_MODEL_DIR": "/opt/ml/model",
        "SM_OUTPUT_DATA_DIR": "/opt/ml/output/data",
        "SM_CHANNELS": '["test","training"]',
        "SM_CHANNEL_TEST": "/opt/ml/input/data/test",
        "SM_CHANNEL_TRAINING": "/opt/ml/input/data/training",
    }
    assert second.arguments == [
        *("--data", VALUES["data"], "--epochs", "3", "--fast", "True", "-k", "2"),
        *("--lr", "0.1"),
    ]
    from torch.distributed.run import parse_args

    options = parse_args(second.command[1:])
    assert (options.nnodes, options.nproc_per_node) == ("2", "4")
    assert (options.master_addr, options.master_port) == ("algo-1", 7777)
    assert options.node_rank == 1
    assert options.training_script_args == second.arguments
    assert repr(second).count("SM_") == second._repr_html_().count("SM_") == 10


def test_the_container_is_as_the_toolkit_makes_it(script):
    mapping = pytest.importorskip(
        "sagemaker_training.mapping", reason="needs sagemaker-training"
    )
    container = d2l.sagemaker_job(script, VALUES, **JOB).container(num_gpus=4)
    assert container.arguments == mapping.to_cmd_args(VALUES)
    known = {"hps": VALUES, "hosts": ["algo-1", "algo-2"], "num_gpus": 4}
    assert mapping.to_env_vars(known).items() <= container.environment.items()


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        (
            {"instance_count": 0},
            ValueError,
            "number of machines must be at least 1, but got 0",
        ),
        (
            {"instance_type": "ml.m5.large"},
            ValueError,
            "GPUs, .*, but got 'ml.m5.large'",
        ),
        ({"instance_type": "ml.g5.12xlarge\n"}, ValueError, "with GPUs"),
        ({"role": "my role"}, ValueError, "a role in IAM, but got 'my role'"),
        (
            {"checkpoints": "/data"},
            ValueError,
            "s3://bucket/folder', but got '/data'",
        ),
        ({"channels": {"a": "s3://b c"}}, ValueError, "but got 's3://b c'"),
        (
            {"channels": {"a b": "s3://b/c"}},
            ValueError,
            "A channel must .*, but got 'a b'",
        ),
        (
            {"framework_version": "2.8"},
            ValueError,
            "in full, such as '2.8.0', but got '2.8'",
        ),
        (
            {"py_version": "3.12"},
            ValueError,
            "as 'py312' for Python 3.12, but got '3.12'",
        ),
        ({"job": "a_b"}, ValueError, "digits and '-', but got 'a_b'"),
        (
            {"hyperparameters": {"a b": 1}},
            ValueError,
            "can follow '--', .*, but got 'a b'",
        ),
        (
            {"hyperparameters": {"a": [1]}},
            TypeError,
            r"a number or a string, but got \[1\]",
        ),
        ({"options": {"role": 1}}, ValueError, "not set otherwise, .*, but got 'role'"),
        ({"script": "none.py"}, FileNotFoundError, "no script 'none.py' in /"),
    ],
)
def test_a_job_that_makes_no_sense(options, kind, sentence, script):
    with pytest.raises(kind, match=sentence) as caught:
        d2l.sagemaker_job(**{"script": script, **JOB} | options)
    assert "\n" not in str(caught.value)


def test_a_machine_that_the_job_does_not_have(script):
    job = d2l.sagemaker_job(script, **JOB)
    with pytest.raises(ValueError, match=r"has 2 machines, .* no machine 2"):
        job.container(2, num_gpus=1)
    with pytest.raises(
        ValueError, match="number of GPUs must be at least 1, but got 0"
    ):
        job.container(num_gpus=0)
