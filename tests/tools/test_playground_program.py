"""What the playground sends to the browser is a program that runs there."""

import json
import re
import subprocess
import sys
import zipfile

import pytest

from d2l_gpu.vgpu.sim.play import play
from tools.site.playground.program import messages_of_simulator, words, write_simulator

# As in the browser, only Python's own library is there beside what was sent.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from playground.live import Live, speak
assert __import__("d2l_gpu").__file__.startswith(sys.argv[1])
words, messages, question = json.loads(sys.stdin.read())
speak(messages)
print(Live(words).answer(json.dumps(question)))
"""
QUESTIONS = {
    "play": {"ask": "play", "setting": {"model": "LeNet", "gpus": 2}},
    "mistake": {"ask": "play", "setting": {"model": "LeNot"}},
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sent")
    write_simulator(folder / "simulator.zip")
    with zipfile.ZipFile(folder / "simulator.zip") as archive:
        assert not [name for name in archive.namelist() if "torch" in name]
        archive.extractall(folder)
    return folder


def ask(sent, language, question):
    sent_in = [words(language), messages_of_simulator(language), QUESTIONS[question]]
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(sent)],
        input=json.dumps(sent_in),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("language", "decimal", "unit"),
    [("en", ".", "MiB"), ("fr", ",", "Mio"), ("pt", ",", "MiB"), ("zh", ".", "MiB")],
)
def test_it_answers_and_writes_numbers_as_the_language_does(
    sent, language, decimal, unit
):
    answer = ask(sent, language, "play")
    assert answer["picoseconds"] == play(QUESTIONS["play"]["setting"])["picoseconds"]
    html = "".join(answer["parts"][part] for part in ("headline", "limits", "memory"))
    said = answer["say"] + re.sub("<[^>]*>", " ", html)
    # Two digits behind the sign are no thousands.
    assert set(re.findall(r"\d([.,])\d\d?(?!\d)", said)) == {decimal}
    assert f" {unit}" in said.replace("\u202f", " ").replace("\xa0", " ")


@pytest.mark.parametrize("language", ["en", "fr", "pt", "zh"])
def test_it_says_what_is_wrong_with_a_setting(sent, language):
    assert "LeNot" in ask(sent, language, "mistake")["problem"]
