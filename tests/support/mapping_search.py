"""A mapping search without models: students are their mappings, and their fitness is known.

`install(monkeypatch)` puts both in the place of the real ones and returns what was asked of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from limbeck.models.loading import load_tokenizer
from limbeck.recipe.load import load_recipe
from limbeck.search import engine, mapping
from limbeck.search.genetic_sampler import suggest
from limbeck.search.mapping import MappingRequest, MappingSearch
from limbeck.search.mapping import search_mapping as search  # noqa: F401
from limbeck.search.requests import ProxyRequest
from limbeck.training.run import build_corpora
from tests.support.models import make_teacher

NAME, TEACHER_LAYERS, STUDENT_LAYERS = "mapping", 8, 4
STOPPED = "what is evaluated is kept in"
BEST = (0, 0, 3, 7)


def scores_of(mapping):
    """Two scores whose mean is highest at `BEST`, and differs for most mappings."""
    distance = sum((i + 1) * abs(a - b) for i, (a, b) in enumerate(zip(mapping, BEST, strict=True)))
    return {"agreement": 90.0 - distance, "relations": 70.0 - distance / 2}


def fitness(mapping):
    return sum(scores_of(mapping).values()) / 2


@dataclass
class Asked:
    """What a search asked for: the mappings of each training, and the steps of their recipes."""

    batches: list = field(default_factory=list)
    steps: set = field(default_factory=set)
    shares: list = field(default_factory=list)
    teachers: int = 0
    diverges: set = field(default_factory=set)
    before: object = None

    @property
    def tried(self):
        return [mapping for batch in self.batches for mapping in batch]


def install(monkeypatch) -> Asked:
    asked = Asked()

    class FakeProxy:
        def __init__(self, plan, *, share, console):
            self.plan = plan
            self.tokenizer = load_tokenizer(plan.recipe.teacher.model)
            self.corpora = build_corpora(plan, self.tokenizer, console)
            asked.shares.append(share)

        def load_teacher(self):
            asked.teachers += 1

        def train(self, plans):
            mappings = [tuple(plan.recipe.stages[0].method["mapping"]) for plan in plans]
            if asked.before is not None:
                asked.before(mappings)
            asked.batches.append(mappings)
            asked.steps |= {plan.recipe.stages[0].training.get("max_steps") for plan in plans}
            return [SimpleNamespace(student=m, diverged=m in asked.diverges) for m in mappings]

    class FakeScores:
        names = ("agreement", "relations")

        def __init__(self, *arguments):
            pass

        def measure(self, student, plan, name):
            return scores_of(student)

    monkeypatch.setattr(engine, "Proxy", FakeProxy)
    monkeypatch.setattr(mapping, "HeldOutScores", FakeScores)
    return asked


def write_teacher(folder: Path, **changes) -> Path:
    sizes = {"layers": TEACHER_LAYERS, "hidden": 16, "heads": 2, "ffn": 16} | changes
    return make_teacher(folder, "bert", head="masked_lm", **sizes)


def recipe_data(teacher: Path, text: Path, **changes):
    return {
        "name": "searched",
        "output": "run",
        "seed": 3,
        "teacher": {"model": str(teacher)},
        "student": {"shape": {"layers": STUDENT_LAYERS, "hidden": 12, "heads": 2, "ffn": 16}},
        "corpus": {"sources": [str(text)], "length": 32, "held_out": 0.3},
        "stages": [
            {
                "method": {"name": "elm"},
                "training": {"max_steps": 50, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "bf16": False},
            }
        ],
        "evaluation": {"enabled": False},
    } | changes


def make_request(recipe, output, *, name=NAME, steps=None, share=1.0, storage=None, **options) -> MappingRequest:
    """A search of 3 generations of 5; options as of `MappingRequest`."""
    proxy = ProxyRequest(load_recipe(recipe), Path(output), name, steps=steps, share=share, storage=storage)
    return MappingRequest(proxy, **{"generations": 3, "genetic": {"population": 5}, **options})


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
