"""The names of the files that a run, its checkpoints, its student and every export consist of."""

from pathlib import Path

import pytest

from limbeck.api import distill
from limbeck.errors import Interrupted
from limbeck.export.formats import FORMATS
from tests.golden.snapshot import check
from tests.support.models import make_teacher
from tests.support.recipes import MINILMV2, recipe_of
from tests.support.training import at_step, interrupt


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def run(tmp_path_factory, text_folder) -> Path:
    """A finished run of two stages, the second with masks, measured and with checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    teacher = make_teacher(folder, "bert", head="masked_lm")
    evaluation = {"pairs": 60, "retrieval_pairs": 20, "batch_sizes": [1], "latency_seconds": 0.1}
    output = folder / "run"
    distill(recipe_of(teacher, text_folder, MINILMV2, {"name": "mlm"}, evaluation=evaluation, output=str(output)))
    return output


def test_a_run(run):
    """Its student included; a finished stage keeps no checkpoint."""
    check("files/run", names(run))


def test_a_stopped_run(tiny_recipe, tmp_path):
    """Its checkpoints included."""
    with at_step(3, interrupt), pytest.raises(Interrupted):
        distill(tiny_recipe)
    check("files/stopped_run", names(tmp_path / "run"))


@pytest.mark.parametrize("name", FORMATS)
def test_an_export(name, run, limbeck, tmp_path):
    output, student, options = tmp_path / "export", run, ()
    if name == "router":  # Of a model with itself: the student of this run has no sentence vectors.
        student = tmp_path / "student"
        limbeck.json("export", run, "--format", "sentence-transformers", "--output", student)
        options = ("--documents", student)
    printed = sorted(limbeck.json("export", student, "--format", name, "--seconds", 0.2, "--output", output, *options))
    check(f"files/export_{name.replace('-', '_')}", {"files": names(output), "printed": printed})
