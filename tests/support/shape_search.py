"""A search of shapes without models: losses and latencies are known functions of the shape.

`install(monkeypatch)` puts them in the place of the real ones and returns what was asked of them.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from limbeck.search import architecture, shape_space
from limbeck.search.architecture import ArchitectureSearch
from limbeck.search.architecture import search_architecture as search  # noqa: F401
from limbeck.search.latency import ShapeLatency
from limbeck.search.requests import ArchitectureRequest, MeasuringRequest, ShapeSizes
from limbeck.search.shape_space import ShapePoint, shape_points
from tests.support.models import make_teacher
from tests.support.searches import ProxyCalls, install_proxy, recipe_of, request_of

SIZES = ShapeSizes(layers=(1, 2, 3), hidden=(8, 12, 16), heads=(2, 4), ffn=(1,))
POINTS = list(shape_points(SIZES))
EVERYTHING = len(POINTS)
NAME, STOPPED = "architecture", "everything trained so far is kept in"
SMALL = {"sizes": ShapeSizes(layers=(1, 2, 3), hidden=(8, 12), heads=(2,), ffn=(1,))}
# A search of 6 shapes, 2 at once, without pruning.
USUAL = {"sizes": SIZES, "measuring": MeasuringRequest("cpu", length=16, seconds=0.05)}
make_request = partial(request_of, ArchitectureRequest, {**USUAL, "trials": 6, "batch": 2, "prune": False}, name=NAME)


def loss_of(point: ShapePoint) -> float:
    """Lower for deeper and wider shapes, different for all; 1 of what is no shape, the untrained student."""
    if not isinstance(point, ShapePoint):
        return 1.0
    return 0.9 - 0.1 * point.layers - 0.02 * point.hidden - 0.01 * point.ffn - 0.001 * point.heads


def share_of(point: ShapePoint) -> float:
    """Higher for deeper and wider shapes, different for all."""
    return 0.1 * point.layers + 0.01 * point.hidden + 0.002 * point.ffn + 0.0001 * point.heads


def reward_of(point: ShapePoint) -> float:
    return (1 - loss_of(point)) * (share_of(point) / 0.6) ** -0.06


def point_of(config) -> ShapePoint:
    ffn = config.intermediate_size / config.hidden_size
    return ShapePoint(config.num_hidden_layers, config.hidden_size, config.num_attention_heads, ffn)


_divided: dict = {}
_divide = shape_space.divide_shapes


def divide_once(recipe, sizes):
    """Divide the shapes of a recipe, unless that was done before."""
    key = recipe.model_dump_json(), repr(sizes)
    if key not in _divided:
        _divided[key] = _divide(recipe, sizes)
    return _divided[key]


def install(monkeypatch) -> ProxyCalls:
    monkeypatch.setattr(shape_space, "divide_shapes", divide_once)
    calls = install_proxy(monkeypatch, lambda plan: point_of(plan.student_config))

    def measure(config):
        calls.measured.append(point_of(config))
        share = share_of(calls.measured[-1])
        return ShapeLatency(share=share, student_ms=10 * share, teacher_ms=10.0, threads=1)

    monkeypatch.setattr(ArchitectureSearch, "_loss", lambda self, student, plan: loss_of(student))
    monkeypatch.setattr(architecture, "LatencyBench", lambda teacher, setting: measure)
    monkeypatch.setattr(architecture, "LastLayers", lambda *arguments: None)
    monkeypatch.setattr(architecture, "make_student", lambda *arguments, **options: ("untrained", {}))
    monkeypatch.setattr(architecture, "plain_copy", lambda student, plan: student)
    return calls


def write_teacher(folder: Path, **changes) -> Path:
    return make_teacher(folder, "bert", **({"layers": 3, "hidden": 16, "heads": 4, "ffn": 32} | changes))


def recipe_data(teacher: Path, text: Path, **changes):
    return recipe_of(teacher, text, "2x8h2", 24, {"name": "hidden_states", "mapping": "last"}) | changes


def results(record):
    """What a search found of each candidate, without times."""
    return [
        {name: row[name] for name in ("layers", "hidden", "heads", "ffn", "loss", "state")} for row in record["shapes"]
    ]


def take_decided(found):
    """Take the option that the search decides out of a recipe."""
    return found["student"].pop("shape", None)


def leave_running(study, request):
    """Take a candidate that no trial has yet as a worker does; returns its trial."""
    known = [trial.params for trial in study.trials]
    study.enqueue_trial(next(point._asdict() for point in shape_points(request.sizes) if point._asdict() not in known))
    trial = study.ask()
    for name, values in asdict(request.sizes).items():
        trial.suggest_categorical(name, values)
    return trial
