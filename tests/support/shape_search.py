"""A search of shapes without models: losses and latencies are known functions of the shape.

`install(monkeypatch)` puts them in the place of the real ones and returns what was asked of them.

    python -m tests.support.shape_search TEACHER TEXT OUTPUT LOG

is a worker that writes the shapes of each training into LOG, and never comes back from the second.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from limbeck.models.loading import load_tokenizer
from limbeck.recipe.load import load_recipe
from limbeck.search import architecture, engine
from limbeck.search.architecture import search_architecture as search
from limbeck.search.latency import ShapeLatency
from limbeck.search.requests import ArchitectureRequest, MeasuringRequest, ProxyRequest, ShapeLimits, ShapeSizes
from limbeck.search.shape_space import ShapePoint, shape_points
from limbeck.training.run import build_corpora
from tests.support.models import make_teacher

SIZES = ShapeSizes(layers=(1, 2, 3), hidden=(8, 12, 16), heads=(2, 4), ffn=(1,))
POINTS = list(shape_points(SIZES))
EVERYTHING = len(POINTS)
STEPS = 30
NAME, STOPPED = "architecture", "what is trained is kept in"


def loss_of(point: ShapePoint) -> float:
    """Lower for deeper and wider shapes, different for all."""
    return 0.9 - 0.1 * point.layers - 0.02 * point.hidden - 0.01 * point.ffn - 0.001 * point.heads


def share_of(point: ShapePoint) -> float:
    """Higher for deeper and wider shapes, different for all."""
    return 0.1 * point.layers + 0.01 * point.hidden + 0.002 * point.ffn + 0.0001 * point.heads


def reward_of(point: ShapePoint) -> float:
    return (1 - loss_of(point)) * (share_of(point) / 0.6) ** -0.06


def point_of(config) -> ShapePoint:
    ffn = config.intermediate_size / config.hidden_size
    return ShapePoint(config.num_hidden_layers, config.hidden_size, config.num_attention_heads, ffn)


@dataclass
class Asked:
    """What a search asked for: the shapes of each training, those whose latency was measured, and what to do."""

    batches: list = field(default_factory=list)
    measured: list = field(default_factory=list)
    steps: set = field(default_factory=set)
    diverges: set = field(default_factory=set)
    before: object = None

    @property
    def tried(self):
        return [point for batch in self.batches for point in batch]


class FakeLoss:
    def __init__(self, *arguments):
        pass

    def __call__(self, student):
        return loss_of(student) if isinstance(student, ShapePoint) else 1.0

    def divided_by(self, untrained):
        assert untrained == 1.0
        return self


def install(monkeypatch) -> Asked:
    asked = Asked()

    class FakeProxy:
        def __init__(self, plan, *, share, console):
            self.plan = plan
            self.tokenizer = load_tokenizer(plan.recipe.teacher.model)
            self.corpora = build_corpora(plan, self.tokenizer, console)

        def load_teacher(self):
            return self

        def to(self, device):
            return self

        def eval(self):
            return self

        def train(self, plans, *, cuts):
            points = [point_of(plan.student_config) for plan in plans]
            if asked.before is not None:
                asked.before(points)
            asked.batches.append(points)
            asked.steps |= {plan.recipe.stages[0].training["max_steps"] for plan in plans}
            active = {index: point for index, point in enumerate(points) if point not in asked.diverges}
            steps = dict.fromkeys(range(len(points)), 1)
            for step in [*sorted(cuts), STEPS]:
                steps |= dict.fromkeys(active, step)
                if step in cuts and active:
                    kept = cuts[step](dict(active))
                    active = {index: active[index] for index in kept}
            return [
                SimpleNamespace(student=point, steps=steps[index], diverged=point in asked.diverges, held_out={})
                for index, point in enumerate(points)
            ]

    class FakeBench:
        def __init__(self, teacher, setting):
            pass

        def __call__(self, config):
            asked.measured.append(point_of(config))
            share = share_of(asked.measured[-1])
            return ShapeLatency(share=share, student_ms=10 * share, teacher_ms=10.0, threads=1)

    monkeypatch.setattr(engine, "Proxy", FakeProxy)
    monkeypatch.setattr(architecture, "LastLayerLoss", FakeLoss)
    monkeypatch.setattr(architecture, "LatencyBench", FakeBench)
    monkeypatch.setattr(architecture, "make_student", lambda *arguments: ("untrained", {}))
    monkeypatch.setattr(architecture, "plain_copy", lambda student, plan: student)
    return asked


def write_teacher(folder: Path) -> Path:
    return make_teacher(folder, "bert", layers=3, hidden=16, heads=4, ffn=32)


def recipe_data(teacher: Path, text: Path, **changes):
    return {
        "output": "run",
        "seed": 3,
        "teacher": {"model": str(teacher)},
        "student": {"shape": "2x8h2"},
        "corpus": {"sources": [str(text)], "length": 24, "held_out": 0.3},
        "stages": [
            {
                "method": {"name": "hidden_states", "mapping": "last"},
                "training": {
                    "max_steps": STEPS,
                    "per_device_train_batch_size": 8,
                    "learning_rate": 1e-3,
                    "bf16": False,
                },
            }
        ],
    } | changes


def make_request(recipe, output, *, name=NAME, steps=None, share=1.0, storage=None, **options) -> ArchitectureRequest:
    """A search of 6 shapes, 2 at once, without pruning; options as of `ArchitectureRequest`."""
    proxy = ProxyRequest(load_recipe(recipe), Path(output), name, steps=steps, share=share, storage=storage)
    usual = {
        "sizes": SIZES,
        "limits": ShapeLimits(),
        "measuring": MeasuringRequest("cpu", length=16, seconds=0.05),
        "trials": 6,
        "batch": 2,
        "prune": False,
    }
    return ArchitectureRequest(proxy, **{**usual, **options})


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
    study.enqueue_trial(next(point._asdict() for point in POINTS if point._asdict() not in known))
    trial = study.ask()
    for name, values in asdict(request.sizes).items():
        trial.suggest_categorical(name, values)
    return trial


def work(teacher: str, text: str, output: str, log: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        asked = install(monkeypatch)

        def hang(points):
            with Path(log).open("a", encoding="utf-8") as file:
                file.write(json.dumps(points) + "\n")
            while asked.batches:
                time.sleep(0.05)

        asked.before = hang
        search(make_request(recipe_data(Path(teacher), Path(text)), output))


if __name__ == "__main__":
    work(*sys.argv[1:])
