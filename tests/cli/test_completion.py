"""Shell completion: scripts, and names that are those of the registries."""

import pytest

from limbeck.api.requests import completions
from limbeck.benchmark.loss_case import measured_objectives
from limbeck.evaluation.protocols.protocol import PROTOCOLS
from limbeck.evaluation.tasks.registry import TASK_GROUPS, TASKS
from limbeck.export.format import FLOATS
from limbeck.methods.cards import RECIPE_CARDS
from limbeck.methods.registry import METHODS
from limbeck.models.blueprint import presets


@pytest.mark.parametrize(
    ("names", "registry"),
    [
        (completions.METHODS, METHODS),
        (completions.RECIPE_CARDS, RECIPE_CARDS),
        (completions.STUDENTS, presets),
        (completions.PROTOCOLS, PROTOCOLS),
        (completions.TASKS, TASKS),
        (completions.TASK_GROUPS, TASK_GROUPS),
        (completions.OBJECTIVES, measured_objectives()),
        (completions.DTYPES, FLOATS),
    ],
)
def test_what_is_written_down_is_what_there_is(names, registry):
    assert sorted(names) == sorted(registry)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("limbeck dist", "distill"),
        ("limbeck search ", "mapping architecture teacher-layer"),
        ("limbeck distill --method minilm", "minilm minilmv2"),
        ("limbeck methods teacher", "teacher_assistant"),
        ("limbeck distill --student tiny", "tinybert-4x312"),
        ("limbeck evaluate m --preset mini", "minilmv2 minilm"),
        ("limbeck evaluate m --tasks rte,mr", "rte,mrpc"),
        ("limbeck evaluate m --tasks rte,mrpc,rt", ""),
        ("limbeck export runs/mine --format onnx", "onnx onnx-int8"),
        ("limbeck search architecture --sampler n", "nsga2"),
        ("limbeck distill --lear", "--learning-rate"),
    ],
)
def test_bash_completes(limbeck, monkeypatch, words, found):
    monkeypatch.setenv("_LIMBECK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    done = limbeck()
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == sorted(found.split())


def test_it_is_shown_for_every_shell_and_installed_for_bash(limbeck, tmp_path, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    for shell in ("bash", "zsh", "fish"):
        assert "_LIMBECK_COMPLETE=complete_" + shell in limbeck.shown("--show-completion", shell)
    limbeck.shown("--install-completion", "bash")
    script = tmp_path / ".bash_completions" / "limbeck.sh"
    assert "_LIMBECK_COMPLETE=complete_bash" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()
