"""What searches without models share: a trainer of students that are their candidates, and a note of all it trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.models.tokenizers import load_tokenizer
from limbeck.recipe.load import load_recipe
from limbeck.search import engine
from limbeck.search.requests import ProxyRequest
from limbeck.training.corpora import build_corpora
from limbeck.training.proxy import Trained
from limbeck.training.run_tokenizers import load_tokenizers

STEPS = 30


@dataclass
class ProxyCalls:
    """What a search asked for, and which candidates diverge; `before` is called with the candidates of a training."""

    batches: list = field(default_factory=list)
    measured: list = field(default_factory=list)
    steps: set = field(default_factory=set)
    diverges: set = field(default_factory=set)
    before: Callable[[list], object] | None = None
    teachers: int = 0

    @property
    def tried(self):
        return [candidate for batch in self.batches for candidate in batch]


def install_proxy(monkeypatch, candidate_of) -> ProxyCalls:
    """Put a trainer in the place of the real one, whose students are `candidate_of` their plan."""
    calls = ProxyCalls()

    class FakeProxy:
        def __init__(self, plan, *, share, console):
            self.tokenizer, self.console = load_tokenizer(plan.recipe.teacher.model), console
            self.corpora = build_corpora(plan, load_tokenizers(plan).of_stage, console)

        def load_teacher(self):
            calls.teachers += 1
            return self

        to = eval = lambda self, *device: self

        def train(self, plans, *, cuts):
            candidates = [candidate_of(plan) for plan in plans]
            if calls.before is not None:
                calls.before(candidates)
            calls.batches.append(candidates)
            calls.steps |= {plan.recipe.stages[0].training["max_steps"] for plan in plans}
            active, steps = dict(enumerate(candidates)), {}
            for step in [1, *sorted(cuts), plans[0].recipe.stages[0].training["max_steps"]]:
                steps |= dict.fromkeys(active, step)
                active = {index: one for index, one in active.items() if one not in calls.diverges}
                if step in cuts:
                    active = {index: active[index] for index in cuts[step](dict(active))}
            return [
                Trained(student=one, steps=steps[index], diverged=one in calls.diverges, held_out={"loss": 0.5})
                for index, one in enumerate(candidates)
            ]

    monkeypatch.setattr(engine, "Proxy", FakeProxy)
    return calls


def recipe_of(
    teacher: Path, text: Path, shape, length: int, method, steps: int = STEPS, rate: float = 1e-3
) -> dict[str, Any]:
    training = {"max_steps": steps, "per_device_train_batch_size": 8, "learning_rate": rate, "bf16": False}
    return {
        "output": "run",
        "seed": 3,
        "teacher": {"model": str(teacher)},
        "student": {"shape": shape},
        "corpus": {"sources": [str(text)], "length": length, "held_out": 0.3},
        "stages": [{"method": method, "training": training}],
    }


def request_of(kind, usual, recipe, output, *, name, steps=None, share=1.0, storage=None, **options):
    """A request of this kind; its options lie over the usual ones."""
    proxy = ProxyRequest(load_recipe(recipe), Path(output or "."), name, steps=steps, share=share, storage=storage)
    return kind(proxy, **{**usual, **options})
