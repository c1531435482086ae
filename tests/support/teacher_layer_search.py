"""A search of teacher layers: its recipe, its request, and races whose scores are known."""

from types import SimpleNamespace

import pytest

from limbeck.recipe.load import load_recipe
from limbeck.search import teacher_layer
from limbeck.search.requests import ProxyRequest
from limbeck.search.teacher_layer import TeacherLayerRequest
from tests.support.corpora import write_text
from tests.support.models import make_teacher
from tests.support.shape_search import recipe_data

DEPTH = 4


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    teacher = make_teacher(folder, "bert", layers=DEPTH, hidden=16, heads=4, ffn=32)
    data = recipe_data(teacher, write_text(folder / "text", 60), student={"shape": "2x8h4"})
    data["stages"][0] |= {"method": {"name": "minilmv2", "relation_heads": 4}}
    data["stages"][0]["training"] |= {"max_steps": 6, "learning_rate": 1e-2}
    return data


def make_request(recipe, output, *, name="teacher-layer", steps=None, storage=None, **options):
    proxy = ProxyRequest(load_recipe(recipe), output, name, steps=steps, storage=storage)
    return TeacherLayerRequest(proxy, **options)


@pytest.fixture
def raced(monkeypatch):
    """Trainings of known scores in place of real ones: the later the layer, the better. Lists the layers of each."""
    monkeypatch.setattr("os.fsync", lambda file: None)
    trained = []

    def halve(proxy, plans, candidates, rungs, measure, console):
        trained.append([plan.recipe.stages[0].method["teacher_layer"] for plan in plans])
        for one in candidates:
            one.steps, one.scores = 6, {6: {"agreement": 10.0 * one.layer, "explained": 20.0 * one.layer}}
            one.trial.report(one.score, 6)

    monkeypatch.setattr(teacher_layer, "halve", halve)
    monkeypatch.setattr(teacher_layer, "HeldOutScores", lambda *arguments: SimpleNamespace(measure=None))
    return trained
