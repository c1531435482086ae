"""A search of shapes that really trains: losses and latencies are those of the students that come out."""

import dataclasses

import pytest
import torch
from rich.console import Console

from limbeck.models.blueprint import parse_blueprint, student_config
from limbeck.recipe.plan import plan_run
from limbeck.search.architecture import ArchitectureSearch, MeasuringRequest, search_architecture
from limbeck.search.latency import LatencyBench, LatencySetting
from limbeck.search.scores import LastLayerLoss, held_out_batches
from limbeck.search.shape_space import ShapeLimits, ShapePoint, ShapeSizes, shape_space, with_shape
from limbeck.training.proxy import Proxy
from limbeck.training.students import make_student
from tests.support.corpora import write_text
from tests.support.shape_search import make_request, recipe_data, write_teacher

SIZES = ShapeSizes(layers=(1, 2), hidden=(8, 16), heads=(2,), ffn=(2,))
QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = recipe_data(write_teacher(folder), write_text(folder / "text", 40))
    data["student"]["dropout"] = 0.0  # neighbours of another shape change what is drawn for it
    data["stages"][0]["training"] |= {"max_steps": 6, "learning_rate": 1e-2}
    return data


def test_a_search_that_trains(recipe, tmp_path):
    request = make_request(
        recipe, tmp_path / "out", sizes=SIZES, trials=3, prune=True, limits=ShapeLimits(20_000, latency_share=50.0)
    )
    record = search_architecture(request)
    assert record["cuts"] == [2, 4] and record["cost"]["trained"] == 3
    assert record["loss"]["kind"] == "hidden"
    # The best shape alone, without a search, a cut or a neighbour, comes to the same loss.
    best = record["best"]
    plan = plan_run(with_shape(request.proxy.recipe, ShapePoint(best["layers"], best["hidden"], best["heads"], 2)))
    proxy = Proxy(plan, console=QUIET)
    [alone] = proxy.train([plan])
    teacher, batches = proxy.load_teacher(), held_out_batches(proxy.corpora[0], proxy.tokenizer)
    shapes = shape_space(request.proxy.recipe, SIZES).shapes
    loss = LastLayerLoss(teacher, batches, [shape.plan.student for shape in shapes.values()], "hidden")
    smallest = shapes[ShapePoint(1, 8, 2, 2)].plan
    untrained, _ = make_student(smallest.student_choice, None, None, proxy.load_teacher, 3)
    assert record["loss"]["untrained"] == pytest.approx(loss(untrained))
    assert best["loss"] == pytest.approx(loss(alone.student) / loss(untrained), rel=1e-4)
    assert set(best["rewards_on_the_way"]) == {"2", "4"}
    again = search_architecture(dataclasses.replace(request, trials=4))
    assert again["shapes"][:3] == record["shapes"] and again["loss"] == record["loss"]


def test_relations_are_the_loss_of_methods_on_attention(recipe, tmp_path):
    stage = {**recipe["stages"][0], "method": {"name": "minilmv2", "relation_heads": 4}}
    record = search_architecture(make_request({**recipe, "stages": [stage]}, tmp_path / "out", sizes=SIZES, trials=2))
    assert record["loss"]["kind"] == "relations"
    assert all(0 < shape["loss"] < 1.5 for shape in record["shapes"])


def test_a_latency_is_measured_beside_the_teachers(recipe, tmp_path):
    request = make_request(recipe, tmp_path, sizes=SIZES)
    proxy = Proxy(ArchitectureSearch(request).plan, console=QUIET)
    setting = LatencySetting(torch.device("cpu"), length=64, batch=4, seconds=0.4)
    bench = LatencyBench(proxy.load_teacher(), setting)
    small, large = (student_config(parse_blueprint(f"{n}x16h4"), proxy.load_teacher().config) for n in (1, 12))
    fast, slow = bench(small), bench(large)
    assert fast.share < 1 < slow.share
    for found in (fast, slow):
        assert found.share == pytest.approx(found.student_ms / found.teacher_ms)
        assert found.threads == torch.get_num_threads()
    assert setting.identity == {
        "device": "cpu",
        "length": 64,
        "batch": 4,
        "dtype": "float32",
        "of": "least disturbed pass",
    }


@pytest.mark.slow
def test_workers_of_one_search_share_its_study(recipe, tmp_path):
    request = make_request(recipe, tmp_path / "out", sizes=SIZES, trials=4, batch=1, workers=2)
    record = search_architecture(request)
    trained = [(shape["layers"], shape["hidden"]) for shape in record["shapes"] if shape["state"] == "trained"]
    assert sorted(trained) == [(1, 8), (1, 16), (2, 8), (2, 16)]


def test_measuring_requests_have_the_usual_defaults():
    assert MeasuringRequest() == MeasuringRequest("auto", None, 1, 4.0)
