"""The examples in the docstrings of the public calls run, one after the other, with tiny models and few steps."""

import doctest
import re
from pathlib import Path

import pytest

import limbeck
from tests.support.corpora import write_text
from tests.support.models import make_embedding
from tests.support.task_files import write_tasks

#: In the order in which one uses the results of another.
CALLS = (
    "validate", "distill", "evaluate", "finetune", "compare", "export", "report", "search", "benchmark", "inspect",
    "trim",
)  # fmt: skip
#: Numbers that would take hours, and what stands for them here.
SMALLER = (
    (r"3x384", "3x16h2"),
    (r"12x768", "2x16h2"),
    (r"6x384", "1x16h2"),
    (r"1_000_000", "2_000"),
    (r"steps=2000", "steps=4"),
    (r'output="runs/e5"', 'output="runs/e5", steps=4'),
    (r'preset="quick"', 'preset="quick", overrides=["length=32", "epochs=1", "batch_size=8", "max_scored_rows=20"]'),
    (r"lengths=\[128\]", "lengths=[8], seconds=0.05"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the model, the texts and the tasks that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "intfloat").mkdir()
    make_embedding(folder / "made").rename(folder / "intfloat/e5-small-v2")
    write_text(folder / "texts", 60)
    write_tasks(folder / "data")
    return folder


def example_of(name):
    """The example of a call, with small numbers."""
    text = getattr(limbeck.api, name).__doc__.partition("Example:\n")[2]
    for pattern, small in SMALLER:
        text = re.sub(pattern, small, text)
    return doctest.DocTestParser().get_doctest(text, {"limbeck": limbeck}, name, None, None)


def test_every_call_has_an_example():
    calls = [name for name in limbeck.__all__ if name.islower() and callable(getattr(limbeck, name))]
    assert [name for name in calls if not example_of(name).examples] == []
    assert {*CALLS} <= {*calls}


@pytest.mark.slow
def test_the_examples_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in CALLS:
        lines = []
        failed, _ = doctest.DocTestRunner(verbose=False).run(example_of(name), out=lines.append)
        assert not failed, "".join(lines)
    assert Path("runs/e5/report.html").is_file()
