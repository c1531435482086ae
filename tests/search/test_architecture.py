"""A search of shapes: rewards, limits and cuts, with known losses and latencies; and searches that train."""

import dataclasses
import io
import statistics
from types import SimpleNamespace

import pytest
import torch
from optuna.trial import TrialState
from rich.console import Console

from limbeck.comparison.last_layers import LastLayers, LayerFigures
from limbeck.errors import Interrupted, RecipeError, TrainingError
from limbeck.models.blueprint import parse_blueprint
from limbeck.models.students import student_config
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search.architecture import ArchitectureSearch, search_architecture
from limbeck.search.held_out_scores import loss_batches
from limbeck.search.latency import LatencyBench, LatencySetting, ShapeLatency
from limbeck.search.pareto import pareto_front
from limbeck.search.requests import SAMPLERS, MeasuringRequest, ShapeLimits, ShapeSizes
from limbeck.search.shape_space import ShapePoint, shape_points, with_shape
from limbeck.search.taught_streams import taught_layers
from limbeck.search.worker_signs import worker_key
from limbeck.training.proxy import Proxy
from limbeck.training.student_maker import make_student
from tests.support import shape_search
from tests.support.known_search import sign_of_life
from tests.support.models import make_teacher
from tests.support.searches import STEPS
from tests.support.shape_search import EVERYTHING, POINTS, loss_of, make_request, reward_of, share_of

searched = shape_search
FEW = ShapeSizes(layers=(1, 2), hidden=(8, 16), heads=(2,), ffn=(2,))


@pytest.fixture
def run(recipe, tmp_path):
    """Searches into `out`."""
    return lambda data=recipe, console=None, **options: search_architecture(
        make_request(data, tmp_path / "out", **options), console
    )


def point(shape):
    return ShapePoint(shape["layers"], shape["hidden"], shape["heads"], shape["ffn"] / shape["hidden"])


def by_state(record, state):
    return [point(shape) for shape in record["shapes"] if shape["state"] == state]


def test_every_shape_has_the_reward_of_its_loss_and_latency(run, calls):
    first = run()
    assert len(first["shapes"]) == 6 and by_state(first, "trained") == calls.tried
    more = run(trials=9, batch=3)
    assert more["shapes"][:6] == first["shapes"] and len(set(calls.tried)) == 9
    assert [len(batch) for batch in calls.batches] == [2, 2, 2, 3] and calls.measured == calls.tried
    for shape in more["shapes"]:
        assert shape["loss"] == loss_of(point(shape)) and shape["latency_share"] == share_of(point(shape))
        assert shape["reward"] == pytest.approx(reward_of(point(shape)))
        assert shape["steps"] == STEPS
    assert point(more["best"]) == max(calls.tried, key=reward_of)
    places = [(shape["loss"], shape["latency_share"]) for shape in more["shapes"]]
    assert more["front"] == [more["shapes"][index]["trial"] for index in pareto_front(places)]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_search_of_everything_finds_the_best_and_ends(run, calls, sampler):
    sizes = ShapeSizes((1, 2, 3), (8, 12), (2,), (1, 2))
    record = run(sizes=sizes, trials=99, batch=5, sampler=sampler)
    assert sorted(calls.tried) == sorted(shape_points(sizes))
    assert record["cost"]["trained"] == 12
    assert point(record["best"]) == max(shape_points(sizes), key=reward_of)


def test_shapes_beyond_a_limit_cost_no_training(run, recipe, calls, study):
    space = ArchitectureSearch(make_request(recipe, None)).space
    sizes = {p: shape.parameters for p, shape in space.shapes.items()}
    most = sorted(sizes.values())[EVERYTHING // 2]
    small = {p for p in POINTS if sizes[p] <= most}
    longest = sorted(map(share_of, small))[len(small) // 2]
    record = run(limits=ShapeLimits(parameters=most, latency_share=longest), trials=99)
    assert set(calls.measured) == small and len(calls.measured) == len(small)
    assert calls.tried[0] == ShapePoint(1, 8, 2, 1), "the shape that is least likely to be too slow comes first"
    assert set(calls.tried) == {p for p in small if share_of(p) <= longest} == set(by_state(record, "trained"))
    refused = {point(shape): shape["reason"] for shape in record["shapes"] if shape["state"] == "refused"}
    for shape, reason in refused.items():
        too_large = f"{sizes[shape]:,} parameters, {most:,} are the limit"
        too_slow = f"{share_of(shape):.3f} of the teacher's latency, {longest:g} is the limit"
        assert reason == (too_large if sizes[shape] > most else too_slow)
    pruned = [trial.user_attrs["refused"] for trial in study().get_trials(states=(TrialState.PRUNED,))]
    assert set(pruned) == set(refused.values()) and record["cost"]["trained"] == len(calls.tried)


def test_a_latency_limit_that_no_shape_meets_is_refused_before_training(run, calls):
    with pytest.raises(RecipeError, match=r"No shape is within --max-latency-share 0\.1: the smallest, 1x8, 2 heads"):
        run(limits=ShapeLimits(latency_share=0.1))
    assert not calls.batches
    # Another limit may be tried in the same folder; shapes beyond it do not count.
    assert run(limits=ShapeLimits(latency_share=0.3))["cost"]["trained"] == len(calls.tried) == 6


def test_a_shape_that_diverges_counts_and_has_no_reward(run, calls):
    calls.diverges = set(POINTS)
    with pytest.raises(TrainingError, match="No shape reached a loss: its loss is not a finite number; lower"):
        run(trials=2)
    calls.diverges = {p for p in POINTS if p.layers == 1} | set(calls.tried)
    record = run(trials=99)
    assert set(by_state(record, "diverged")) == calls.diverges
    assert len(calls.tried) == EVERYTHING and record["cost"]["failed"] == 0


def test_hopeless_shapes_are_cut_and_the_best_are_not(run, calls):
    record = run(trials=99, prune=True)
    assert record["cuts"] == [10, 20]
    cut = [shape for shape in record["shapes"] if shape["state"] == "cut"]
    assert cut and all(shape["steps"] == 10 and shape["loss"] is None for shape in cut)
    rewards: list[float] = []
    for batch in calls.batches:  # the shapes of a batch are told together
        for shape in (shape for shape in record["shapes"] if point(shape) in batch):
            assert shape["rewards_on_the_way"]["10"] == pytest.approx(reward_of(point(shape)))
            hopeless = len(rewards) >= 5 and reward_of(point(shape)) < statistics.median(rewards)
            assert (shape["state"] == "cut") == (shape["reason"] is not None) == hopeless, shape
        rewards += [reward_of(p) for p in batch if p in by_state(record, "trained")]
    assert point(record["best"]) == max(POINTS, key=reward_of)


def test_shapes_that_were_shown_are_kept_when_a_later_one_fails(run, calls, monkeypatch, study):
    def stop(search, student, plan):
        if len(calls.batches) == 1 and student == calls.batches[0][1]:
            raise KeyboardInterrupt
        return loss_of(student)

    console = Console(record=True, width=200, file=io.StringIO())
    with monkeypatch.context() as patch:
        patch.setattr(ArchitectureSearch, "_loss", stop)
        with pytest.raises(Interrupted):
            run(console=console)
    shapes = [trial.user_attrs["shape"] for trial in study().trials if trial.value is not None]
    first, second = calls.batches[0]
    assert shapes == [str(first)]
    assert str(second) not in console.export_text()
    run()
    assert first not in calls.batches[1] and second in calls.batches[1]


def test_a_shape_that_another_worker_has_is_left_to_it(run, recipe, calls, tmp_path, study):
    run(trials=1, batch=1)
    shared = study()
    trial = searched.leave_running(shared, make_request(recipe, tmp_path / "out"))
    trial.set_user_attr("worker", "alive")
    shared.set_user_attr(worker_key("alive"), sign_of_life())
    taken = ShapePoint(**trial.params)

    def tell(points):
        if len(calls.batches) == 3:
            trial.set_user_attr("loss", loss_of(taken))
            trial.set_user_attr("latency", dataclasses.asdict(ShapeLatency(share_of(taken), 1.0, 10.0, 1)))
            shared.tell(trial, reward_of(taken))

    calls.before = tell
    record = run(trials=EVERYTHING, batch=4)
    assert taken not in calls.tried and len(calls.tried) == EVERYTHING - 1
    assert record["cost"]["trained"] == EVERYTHING


def test_the_loss_is_of_hidden_states_or_of_relations(recipe):
    search = ArchitectureSearch(make_request(recipe, None))
    figures = LayerFigures(divergence=0.4, explained=0.75)
    search._last_layers = SimpleNamespace(device="cpu", compare=lambda student: figures)
    assert (search.loss, search._loss(torch.nn.Identity(), search.plan)) == ("hidden", 0.25)
    search.loss = "relations"
    assert search._loss(torch.nn.Identity(), search.plan) == 0.4


@pytest.mark.parametrize(
    ("method", "taught"),
    [
        ("{name: hidden_states, mapping: uniform}", {1: [2], 2: [3]}),
        ("{name: tinybert, mapping: last}", {1: [2], 2: [3]}),
        ("{name: minilmv2, relation_heads: 2}", {2: [3]}),
        ("{name: hidden_states, mapping: random}", {1: [1, 2, 3], 2: [1, 2, 3]}),
    ],
    ids=["hidden_states", "no embeddings", "no hidden states", "drawn"],
)
def test_the_loss_as_printed_is_of_the_layers_that_are_taught(recipe, method, taught):
    shape = "student.shape={layers: 2, hidden: 16, heads: 4, ffn: 32}"
    plan = plan_run(load_recipe(recipe, [f"stages.0.method={method}", shape]))
    assert taught_layers(plan) == taught


def test_texts_are_as_long_as_the_teacher_takes_where_no_length_is_given(recipe, tmp_path):
    short = make_teacher(tmp_path, "bert", layers=3, hidden=16, heads=4, ffn=32, max_position_embeddings=64)
    for teacher, length in ((short, 64), (recipe["teacher"]["model"], 128)):
        changed = recipe | {"teacher": {"model": str(teacher)}}
        request = make_request(changed, tmp_path / "out", sizes=FEW, measuring=MeasuringRequest("cpu"))
        assert ArchitectureSearch(request).latency.length == length
    assert MeasuringRequest() == MeasuringRequest("auto", None, 1, 4.0)


# Searches that really train.


@pytest.fixture
def trained(recipe):
    recipe["student"] = {"shape": "2x8h2", "dropout": 0.0}  # neighbours of another shape change what is drawn for it
    recipe["stages"][0]["training"] |= {"max_steps": 6, "learning_rate": 1e-2}
    return recipe


def test_a_search_that_trains(trained, tmp_path):
    limits = ShapeLimits(20_000, latency_share=50.0)
    request = make_request(trained, tmp_path / "out", sizes=FEW, trials=3, prune=True, limits=limits)
    record = search_architecture(request)
    assert record["cuts"] == [2, 4] and record["cost"]["trained"] == 3
    assert record["loss"]["kind"] == "hidden"
    # The best shape alone, without a search, a cut or a neighbour, comes to the same loss.
    best = record["best"]
    plan = plan_run(with_shape(request.proxy.recipe, ShapePoint(best["layers"], best["hidden"], best["heads"], 2)))
    proxy = Proxy(plan, console=Console(quiet=True))
    [alone] = proxy.train([plan])
    shapes = ArchitectureSearch(request).space.shapes
    layers = LastLayers(proxy.load_teacher(), loss_batches(proxy), [shape.plan.student for shape in shapes.values()])
    smallest = shapes[ShapePoint(1, 8, 2, 2)].plan
    untrained, _ = make_student(smallest.student_plan, proxy.load_teacher, seed=3)
    losses = [1 - layers.compare(student)[1] for student in (alone.student, untrained)]
    assert record["loss"]["untrained"] == pytest.approx(losses[1])
    assert best["loss"] == pytest.approx(losses[0] / losses[1], rel=1e-4)
    assert set(best["rewards_on_the_way"]) == {"2", "4"}
    again = search_architecture(dataclasses.replace(request, trials=4))
    assert again["shapes"][:3] == record["shapes"] and again["loss"] == record["loss"]


@pytest.mark.slow
def test_workers_of_one_search_share_its_study_and_compare_relations(trained, tmp_path):
    trained["stages"][0]["method"] = {"name": "minilmv2", "relation_heads": 4}
    request = make_request(trained, tmp_path / "out", sizes=FEW, trials=4, batch=1, workers=2)
    record = search_architecture(request)
    assert sorted(map(point, record["shapes"])) == sorted(shape_points(FEW))
    assert record["loss"]["kind"] == "relations" and all(0 < shape["loss"] < 1.5 for shape in record["shapes"])


def test_a_latency_is_measured_beside_the_teachers(recipe):
    proxy = Proxy(plan_run(load_recipe(recipe)), console=Console(quiet=True))
    setting = LatencySetting(torch.device("cpu"), length=64, batch=4, seconds=0.4)
    bench = LatencyBench(proxy.load_teacher(), setting)
    small, large = (student_config(parse_blueprint(f"{n}x16h4"), proxy.load_teacher().config) for n in (1, 12))
    fast, slow = bench(small), bench(large)
    assert fast.share < 1 < slow.share
    for result in (fast, slow):
        assert result.share == pytest.approx(result.student_ms / result.teacher_ms)
        assert result.threads == torch.get_num_threads()
    of = {"device": "cpu", "length": 64, "batch": 4, "dtype": "float32", "of": "least disturbed pass"}
    assert setting.identity == of
