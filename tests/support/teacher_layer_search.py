"""A search of teacher layers without models: the later the layer, the better.

`install(monkeypatch)` puts known scores in the place of trainings and returns what was asked of them.
"""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from limbeck.recipe.load import load_recipe
from limbeck.search import teacher_layer
from limbeck.search.requests import ProxyRequest, TeacherLayerRequest
from limbeck.search.teacher_layer import search_teacher_layer as search  # noqa: F401
from tests.support import shape_search
from tests.support.models import make_teacher

NAME, DEPTH = "teacher-layer", 4
STOPPED = "the same command starts the training of the candidates again"


@dataclass
class Asked:
    """What a search asked for: the layers of each training; `before` is called with them."""

    batches: list = field(default_factory=list)
    before: object = None

    @property
    def tried(self):
        return [layer for batch in self.batches for layer in batch]


def install(monkeypatch) -> Asked:
    asked = Asked()

    def halve(proxy, plans, candidates, rungs, measure, console):
        layers = [plan.recipe.stages[0].method["teacher_layer"] for plan in plans]
        if asked.before is not None:
            asked.before(layers)
        asked.batches.append(layers)
        for one in candidates:
            one.steps, one.scores = 6, {6: {"agreement": 10.0 * one.layer, "explained": 20.0 * one.layer}}
            one.trial.report(one.score, 6)

    monkeypatch.setattr(teacher_layer, "halve", halve)
    monkeypatch.setattr(teacher_layer, "HeldOutScores", lambda *arguments: SimpleNamespace(measure=None))
    return asked


def write_teacher(folder: Path) -> Path:
    return make_teacher(folder, "bert", layers=DEPTH, hidden=16, heads=4, ffn=32)


def recipe_data(teacher: Path, text: Path, **changes):
    data = shape_search.recipe_data(teacher, text, student={"shape": {"layers": 2, "hidden": 8, "heads": 4, "ffn": 32}})
    data["stages"][0] |= {"method": {"name": "minilmv2", "relation_heads": 4}}
    data["stages"][0]["training"] |= {"max_steps": 6, "learning_rate": 1e-2}
    return data | changes


def make_request(recipe, output, *, name=NAME, steps=None, share=1.0, storage=None, **options):
    proxy = ProxyRequest(load_recipe(recipe), output, name, steps=steps, share=share, storage=storage)
    return TeacherLayerRequest(proxy, **options)


def results(record):
    """What a search found of each candidate, without times."""
    return record["layers"]


def take_decided(found):
    """Take the option that the search decides out of a recipe."""
    return found["stages"][0]["method"].pop("teacher_layer", None)


def leave_running(study, request):
    """Take a candidate as a worker does; returns its trial."""
    trial = study.ask()
    trial.suggest_int("teacher_layer", 1, 1)
    return trial
