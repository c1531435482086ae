"""A mapping search without models: students are their mappings, and their fitness is known.

`install(monkeypatch)` puts both in the place of the real ones and returns what was asked of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from limbeck.search import mapping
from limbeck.search.mapping import MappingSearch
from limbeck.search.mapping import search_mapping as search  # noqa: F401
from limbeck.search.mapping_trials import suggest
from limbeck.search.requests import MappingRequest
from tests.support.models import make_teacher
from tests.support.searches import ProxyCalls, install_proxy, recipe_of, request_of

NAME, TEACHER_LAYERS, STUDENT_LAYERS = "mapping", 8, 4
STOPPED = "everything evaluated so far is kept in"
SMALL: dict = {}
BEST = (0, 0, 3, 7)
# A search of 3 generations of 5.
make_request = partial(request_of, MappingRequest, {"generations": 3, "genetic": {"population": 5}}, name=NAME)


def scores_of(mapping):
    """Two scores whose mean is highest at `BEST`, and differs for most mappings."""
    distance = sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(mapping, BEST, strict=True)))
    return {"agreement": 90.0 - distance, "relations": 70.0 - distance / 2}


def fitness(mapping):
    return sum(scores_of(mapping).values()) / 2


class FakeScores:
    names = ("agreement", "relations")

    def __init__(self, *arguments):
        pass

    def measure(self, student, plan, name, learned):
        return scores_of(student)


def install(monkeypatch) -> ProxyCalls:
    monkeypatch.setattr(mapping.held_out_scores, "HeldOutScores", FakeScores)
    return install_proxy(monkeypatch, lambda plan: tuple(plan.recipe.stages[0].method["mapping"]))


def write_teacher(folder: Path, **changes) -> Path:
    sizes = {"layers": TEACHER_LAYERS, "hidden": 16, "heads": 2, "ffn": 16} | changes
    return make_teacher(folder, "bert", head="masked_lm", **sizes)


def recipe_data(teacher: Path, text: Path, **changes):
    shape = {"layers": STUDENT_LAYERS, "hidden": 12, "heads": 2, "ffn": 16}
    data = recipe_of(teacher, text, shape, 32, {"name": "elm"}, steps=50)
    return data | {"name": "searched", "evaluation": {"enabled": False}} | changes


def results(record):
    """What a search found of each candidate, without times."""
    return [{name: row[name] for name in ("mapping", "scores", "generation")} for row in record["candidates"]]


def take_decided(found):
    """Take the option that the search decides out of a recipe."""
    return found["stages"][0]["method"].pop("mapping", None)


def leave_running(study, request):
    """Take a candidate as a worker does; returns its trial."""
    planned = MappingSearch(request)
    study.sampler = planned.sampler()
    trial = study.ask()
    suggest(trial, planned.space)
    return trial
