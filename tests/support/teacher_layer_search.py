"""A search of teacher layers without models: the later the layer, the better.

`install(monkeypatch)` puts known scores in the place of trainings and returns what was asked of them.
"""

from functools import partial
from pathlib import Path

from limbeck.search import teacher_layer
from limbeck.search.requests import TeacherLayerRequest
from limbeck.search.teacher_layer import search_teacher_layer as search  # noqa: F401
from tests.support.models import make_teacher
from tests.support.searches import ProxyCalls, install_proxy, recipe_of, request_of

NAME, DEPTH = "teacher-layer", 4
STOPPED = "the same command starts the training of the candidates again"
SMALL: dict = {}
make_request = partial(request_of, TeacherLayerRequest, {}, name=NAME)


def layer_of(plan):
    return plan.recipe.stages[0].method["teacher_layer"]


class FakeScores:
    def __init__(self, *arguments):
        pass

    def measure(self, student, plan, name):
        return {"agreement": 10.0 * layer_of(plan), "explained": 20.0 * layer_of(plan)}


def install(monkeypatch, scores=FakeScores) -> ProxyCalls:
    monkeypatch.setattr(teacher_layer.held_out_scores, "HeldOutScores", scores)
    monkeypatch.setattr(teacher_layer.held_out_scores, "plain_copy", lambda student, plan: student)
    return install_proxy(monkeypatch, layer_of)


def write_teacher(folder: Path, **changes) -> Path:
    return make_teacher(folder, "bert", **({"layers": DEPTH, "hidden": 16, "heads": 4, "ffn": 32} | changes))


def recipe_data(teacher: Path, text: Path, **changes):
    shape = {"layers": 2, "hidden": 8, "heads": 4, "ffn": 32}
    method = {"name": "minilmv2", "relation_heads": 4}
    return recipe_of(teacher, text, shape, 24, method, steps=6, rate=1e-2) | changes


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
