"""A search of teacher layers: its recipe, its request, and races whose scores are known."""

import pytest

from limbeck.recipe.load import load_recipe
from limbeck.search import teacher_layer as run_teacher_layer
from limbeck.search.layer_race import Racer
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
    """Races with known scores in place of trainings: the later the layer, the better. Lists the layers of each."""
    monkeypatch.setattr("os.fsync", lambda file: None)
    races = []

    def race(proxy, plans, rungs, measure, report):
        layers = [plan.recipe.stages[0].method["teacher_layer"] for plan in plans]
        races.append(layers)
        for index, layer in enumerate(layers):
            report(index, 6, {"agreement": 10.0 * layer, "explained": 20.0 * layer})
        return [Racer({6: {"agreement": 10.0 * layer, "explained": 20.0 * layer}}, steps=6) for layer in layers]

    monkeypatch.setattr(run_teacher_layer, "race", race)
    monkeypatch.setattr(run_teacher_layer, "LayerScores", lambda *arguments: type("Scores", (), {"measure": None}))
    return races
