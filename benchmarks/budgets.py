"""What tokens, size and text buy: students of all-MiniLM-L6-v2 by one recipe, each with public scores.

    python benchmarks/budgets.py --data DATA --work runs/budgets --only "texts;tokens"
    python benchmarks/budgets.py --table

The recipe is the quickstart's (sentence vectors, and the hidden states below them), on Wikipedia with everyday
sentences unless a student says otherwise. Parts of the measurement:

- `starts`: students that nobody trained;
- `tokens`: 3x384 after 0.1 to 3 million tokens, and two methods over layers;
- `sizes`: two to four layers, of the teacher's width and of half of it, after 0.5 million tokens;
- `texts`: 3x384 after 340 steps on one kind of text each;
- `tuning`: changes to the recipe of 3x384 among `sizes`, after as many tokens;
- `best`: the best of these, for about 15 minutes of two cores, and for an hour.

DATA has `wikipedia-en`, `tatoeba/english.txt`, SICK, and SQuAD 1.1 as `v1.1-train.json` and `v1.1-dev.json`. SICK's
training split and SQuAD's training articles are there to choose by (`sick_train`, `squad_train`); SICK's test split and
SQuAD's development articles are only reported (`sick`, `squad`). Scores are in percent, with 95 % intervals over rows.

A row is added as soon as it is measured; a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

from torch import Tensor

from embedding_ablation import (
    TEACHER,
    add_row,
    encode,
    find,
    load_encoder,
    read_rows,
    read_squad,
    read_table,
    reciprocal_ranks,
    spearman,
)
from harness import made_with, table
from limbeck.core import intervals
from own_figures import Student

RESULTS = Path(__file__).parent / "results" / "budgets.jsonl"
WIKIPEDIA_FILES = 12
"""Files of Wikipedia: more sentences than the longest run of `tokens` reads."""
TOKENS_A_STEP = 1_500
"""Of 64 sentences, one half from Wikipedia and one half everyday sentences, as measured."""
TIMED_TOKENS = 128
"""Tokens of the one text whose pass is timed."""
STEERING_PARAGRAPHS = 6
"""Of SQuAD's training paragraphs one in so many is searched, with all its questions."""

BOTH = ("wikipedia", "everyday")
RELATIONS = {"name": "minilmv2", "relation_heads": 48}
HIDDEN_STATES = {"name": "hidden_states", "mapping": [1, 3, 6]}
VECTORS = {"name": "aligned_embedding"}
FITTED_RATE = 3e-4
"""A student whose start is fitted is trained with a smaller rate."""
FITTED_TARGETS = ("stages.0.method.layer_mapping={1: 1, 2: 5}",)
"""Layers 1, 2 and 6 are fitted to the teacher's layers 1, 5 and 6, and are held to them."""
FITTED_BEST = ("student.initialise.fit.pooled=1.0", "student.initialise.fit.ridge=0.01")
"""The fit that is best by SICK's training and trial splits, by the rows of `fitted_start.py`."""


@dataclass(frozen=True)
class Budget:
    """A student of the measurement.

    Args:
        part: The part of the measurement.
        student: The student and its training.
        text: Kinds of text, which share the blocks equally.
        overrides: Changes to its recipe, as `--set` takes them.
        seeds: How many runs with other seeds.
    """

    part: str
    student: Student
    text: tuple[str, ...] = BOTH
    overrides: tuple[str, ...] = ()
    seeds: int = 1

    def recipe(self, texts: Texts, output: Path, seed: int) -> dict[str, Any]:
        """Make the recipe."""
        from limbeck.recipe.overrides import apply_overrides

        sources = [texts.source(kind) for kind in self.text]
        recipe = self.student.recipe(sources, output, seed)
        recipe["evaluation"] = {"enabled": False}
        if len(sources) > 1:
            recipe["corpus"]["mix"] = {"weights": [1] * len(sources)}
        if self.student.steps == 0:
            recipe["corpus"] |= {"unit": "sentence", "length": 64}
            recipe["stages"] = []
        return apply_overrides(recipe, self.overrides)


def steps_for(tokens: float, tokens_a_step: int = TOKENS_A_STEP) -> int:
    """The steps that read so many tokens."""
    return round(tokens / tokens_a_step)


def half_as_wide(steps: int, layers: tuple[int, ...], changes: Sequence[str] = (), part: str = "sizes") -> Budget:
    """A student of half the width, which is cut from the teacher by its activations; all of it is trained."""
    overrides = (
        f"student.shape={len(layers)}x192h12",
        f"student.initialise={{layers: {list(layers)}, narrow_by: activations}}",
        "stages.0.freeze=[]",
        *changes,
    )
    return Budget(part, Student(steps, layers=layers, method=VECTORS), overrides=overrides)


def training(**fields: object) -> tuple[str, ...]:
    """Overrides of fields of the training."""
    return tuple(f"stages.0.training.{name}={value}" for name, value in fields.items())


def tuned(steps: int) -> dict[str, Budget]:
    """The recipe itself and changes to it, for so many steps of 64 sentences."""
    base = Student(steps)
    return {
        "3x384": Budget("sizes", base, seeds=2),
        "with questions": Budget("tuning", base, (*BOTH, "questions")),
        "with WordNet": Budget("tuning", base, (*BOTH, "wordnet")),
        "twice the rate": Budget("tuning", Student(steps, rate=2e-3)),
        "half of the rate": Budget("tuning", Student(steps, rate=5e-4)),
        "batches of 32": Budget(
            "tuning", Student(2 * steps, rate=7e-4), overrides=training(per_device_train_batch_size=32)
        ),
        "batches of 128": Budget(
            "tuning", Student(steps // 2, rate=1.4e-3), overrides=training(per_device_train_batch_size=128)
        ),
        "a fitted start": Budget(
            "tuning", Student(steps, layers=(1, 2, 6), rate=FITTED_RATE, fit=50_000), overrides=FITTED_TARGETS
        ),
        "embeddings trained": Budget("tuning", base, overrides=("stages.0.freeze=[]",)),
    }


HALF_A_MILLION = steps_for(500_000)
BEST_STEPS = 2_500
BUDGETS: dict[str, Budget] = {
    "layers 1, 3, 6 as they are": Budget("starts", Student(0)),
    "layers 1, 2, 6 fitted": Budget(
        "starts", Student(0, layers=(1, 2, 6), fit=100_000), ("everyday",), overrides=FITTED_BEST
    ),
    "docstrings": Budget("texts", Student(340), ("docstrings",)),
    "installed text": Budget("texts", Student(340), ("installed text",)),
    "WordNet": Budget("texts", Student(340), ("wordnet",)),
    "Wikipedia": Budget("texts", Student(340), ("wikipedia",), seeds=2),
    "everyday sentences": Budget("texts", Student(340), ("everyday",)),
    "Wikipedia with everyday sentences": Budget("texts", Student(340), seeds=2),
    "questions": Budget("texts", Student(340), ("questions",)),
    "Wikipedia with questions": Budget("texts", Student(340), ("wikipedia", "questions")),
    "sentence vectors, 0.1 M": Budget("tokens", Student(steps_for(1e5)), seeds=2),
    "sentence vectors, 0.3 M": Budget("tokens", Student(steps_for(3e5)), seeds=2),
    "sentence vectors, 1 M": Budget("tokens", Student(steps_for(1e6)), seeds=2),
    "sentence vectors, 3 M": Budget("tokens", Student(steps_for(3e6))),
    "2x384": Budget("sizes", Student(HALF_A_MILLION, layers=(1, 6))),
    "4x384": Budget("sizes", Student(HALF_A_MILLION, layers=(1, 2, 4, 6))),
    "2x192": half_as_wide(HALF_A_MILLION, (1, 6)),
    "3x192": half_as_wide(HALF_A_MILLION, (1, 3, 6)),
    "6x192": half_as_wide(HALF_A_MILLION, (1, 2, 3, 4, 5, 6)),
    **tuned(HALF_A_MILLION),
    "relations, 0.1 M": Budget("tokens", Student(steps_for(1e5), method=RELATIONS, rate=3e-4)),
    "relations, 0.3 M": Budget("tokens", Student(steps_for(3e5), method=RELATIONS, rate=3e-4)),
    "relations, 1 M": Budget("tokens", Student(steps_for(1e6), method=RELATIONS, rate=3e-4)),
    "hidden states, 0.1 M": Budget("tokens", Student(steps_for(1e5), method=HIDDEN_STATES)),
    "hidden states, 0.3 M": Budget("tokens", Student(steps_for(3e5), method=HIDDEN_STATES)),
    "hidden states, 1 M": Budget("tokens", Student(steps_for(1e6), method=HIDDEN_STATES)),
    "hidden states, 3 M": Budget("tokens", Student(steps_for(3e6), method=HIDDEN_STATES)),
}
"""All students but the best one, in the order in which they are measured."""


class Texts:
    """The kinds of text, each as a source.

    Args:
        data: Folder with the public text.
        folder: Where a file of each kind is written.
        wikipedia_files: How many files of Wikipedia are read.
    """

    def __init__(self, data: Path, folder: Path, wikipedia_files: int = WIKIPEDIA_FILES) -> None:
        self._data = data
        self._folder = folder
        self._wikipedia_files = wikipedia_files
        folder.mkdir(parents=True, exist_ok=True)

    def source(self, kind: str) -> str:
        """The source of a kind, as recipes name it."""
        names = {"docstrings": "installed-docs", "installed text": "installed-text", "wordnet": "wordnet"}
        if kind in names:
            return names[kind]
        path = self._folder / f"{kind}.txt"
        if not path.is_file():
            path.write_text("\n\n".join(self._documents(kind)) + "\n", encoding="utf-8")
        return str(path)

    def _documents(self, kind: str) -> list[str]:
        """Read the documents of a kind: files of Wikipedia, or sentences."""
        if kind == "wikipedia":
            files = sorted(find(self._data, "wikipedia-en").glob("*.txt"))[: self._wikipedia_files]
            return [file.read_text(encoding="utf-8").strip() for file in files]
        if kind == "questions":
            questions, _, _ = read_squad(find(self._data, "v1.1-train.json"))
            return [" ".join(question.split()) for question in questions]
        sentences = find(self._data, "english.txt").read_text(encoding="utf-8").splitlines()
        return [sentence.strip() for sentence in sentences if sentence.strip()]


class Scores:
    """Public scores of models, beside the teacher's.

    Args:
        data: Folder with SICK and SQuAD.
        teacher: The teacher.
    """

    def __init__(self, data: Path, teacher: str = TEACHER) -> None:
        self._teacher = teacher
        self._pairs = {
            "sick": read_table(find(data, "SICK_test_annotated.txt")),
            "sick_train": read_table(find(data, "SICK_train.txt")),
        }
        self._passages = {
            "squad": read_squad(find(data, "v1.1-dev.json")),
            "squad_train": read_squad(find(data, "v1.1-train.json"), STEERING_PARAGRAPHS),
        }
        # The teacher is scored first, since students are compared with it question by question.
        self._teacher_ranks: dict[str, Tensor] = {}
        self._teacher_correlations: dict[str, float] = {}
        self.teacher = self.of(teacher)

    def of(self, model: str) -> dict[str, Any]:
        """Score a model, in percent with intervals, and time it beside its teacher."""
        encoder = load_encoder(model)
        figures = {name: self.score(encoder, name) for name in (*self._pairs, *self._passages)}
        return figures | time_beside_teacher(model, self._teacher)

    def score(self, encoder: Any, name: str) -> dict[str, Any]:
        """Score a model of sentence-transformers by one measure."""
        if name in self._pairs:
            return self._correlation(encoder, name, self._pairs[name])
        questions, paragraphs, numbers = self._passages[name]
        ranks = reciprocal_ranks(encode(encoder, questions), encode(encoder, paragraphs), numbers)
        return self._retrieval(name, ranks)

    def _correlation(self, encoder: Any, name: str, pairs: Sequence[Mapping[str, str]]) -> dict[str, Any]:
        """Spearman of cosines with the relatedness of pairs."""
        first = encode(encoder, [row["sentence_A"] for row in pairs])
        second = encode(encoder, [row["sentence_B"] for row in pairs])
        correlation = spearman((first * second).sum(-1), [float(row["relatedness_score"]) for row in pairs])
        teacher = self._teacher_correlations.setdefault(name, correlation)
        interval = intervals.of_correlation(correlation, len(pairs), ranked=True)
        return in_percent(correlation, interval) | {"share_of_teacher": round(100 * correlation / teacher, 2)}

    def _retrieval(self, name: str, ranks: Tensor) -> dict[str, Any]:
        """MRR@10 of questions among paragraphs, and what it is below the teacher's, question by question."""
        teacher = self._teacher_ranks.setdefault(name, ranks)
        value = float(ranks.mean())
        below = teacher - ranks
        return {
            **in_percent(value, intervals.of_many(ranks.tolist())),
            "share_of_teacher": round(100 * value / float(teacher.mean()), 2),
            "below_teacher": in_percent(float(below.mean()), intervals.of_many(below.tolist())),
        }


def in_percent(value: float, interval: Sequence[float] | None) -> dict[str, Any]:
    """A value and its interval, in percent."""
    return {"value": round(100 * value, 3), "interval": [round(100 * end, 3) for end in interval or ()]}


def time_beside_teacher(model: str, teacher: str) -> dict[str, float]:
    """Count the parameters of a model, and time it and a teacher in turns on one text."""
    from limbeck.evaluation.costs import count_parameters
    from limbeck.evaluation.latency import measure_latency
    from limbeck.models.loading import load_model

    student = load_model(model)
    latency = measure_latency(load_model(teacher), student, batch_sizes=(1,), length=TIMED_TOKENS, seconds=8.0)
    [batch] = latency.batches
    return {
        "parameters": count_parameters(student).total,
        "milliseconds": round(batch.student.median_ms, 3),
        "teacher_milliseconds": round(batch.teacher.median_ms, 3),
        "times_as_fast": round(batch.speedup, 3),
    }


def best_change() -> str:
    """The change that keeps most of the teacher's scores to choose by, the mean of both; the recipe itself is one."""
    shares = {}
    for row in read_rows(RESULTS):
        if row["seed"] == 1:
            measured = [row["sick_train"]["share_of_teacher"], row["squad_train"]["share_of_teacher"]]
            shares[row["student"]] = sum(measured) / len(measured)
    changes = list(tuned(HALF_A_MILLION))
    missing = [name for name in changes if name not in shares]
    if missing:
        raise SystemExit(f"The best student is chosen by the rows of {', '.join(changes)}; missing: {missing}.")
    return max(changes, key=shares.__getitem__)


def best_budgets() -> dict[str, Budget]:
    """The best student at two budgets, by the rows of the changes."""
    change = best_change()
    print(f"The best change by the scores to choose by: {change}.", flush=True)
    budgets = {}
    for title, steps, seeds in (("best, 15 minutes", BEST_STEPS, 2), ("best, an hour", 4 * BEST_STEPS, 1)):
        budgets[title] = replace(tuned(steps)[change], part="best", seeds=seeds)
    return budgets


def chosen(only: Sequence[str]) -> Iterator[tuple[str, Budget, int]]:
    """Go through the students of parts or names with their seeds; first seeds come first."""
    budgets = dict(BUDGETS)
    if any(name.startswith("best") for name in only):
        budgets |= best_budgets()
    wanted = {name: budget for name, budget in budgets.items() if name in only or budget.part in only}
    most_seeds = max(budget.seeds for budget in wanted.values())
    for seed in range(1, most_seeds + 1):
        for name, budget in wanted.items():
            if seed <= budget.seeds:
                yield name, budget, seed


def measure(data: Path, work: Path, only: Sequence[str], minutes: float) -> None:
    """Make and score the students that have no row, until the minutes are over."""
    import limbeck

    began = time.monotonic()
    texts = Texts(data, work / "text")
    scores = Scores(data)
    measured = {(row["student"], row["seed"]) for row in read_rows(RESULTS)}
    if ("teacher", 0) not in measured:
        add_row({"student": "teacher", "part": "teacher", "seed": 0} | scores.teacher | made_with(), RESULTS)
    for name, budget, seed in chosen(only):
        if (name, seed) in measured:
            continue
        if time.monotonic() - began > 60 * minutes:
            print("The time is over; the same command goes on.", flush=True)
            return
        output = work / f"{name}-{seed}".replace(" ", "-").replace(",", "")
        result = limbeck.distill(budget.recipe(texts, output, seed), overwrite=True)
        stages = result.record["stages"]
        row = {
            "student": name,
            "part": budget.part,
            "text": list(budget.text),
            "overrides": list(budget.overrides),
            "layers": list(budget.student.layers),
            "rate": budget.student.rate,
            "method": budget.student.method["name"],
            "seed": seed,
            "steps": sum(stage["steps"] for stage in stages),
            "tokens": sum(stage["tokens"] for stage in stages),
            "seconds": round(sum(stage["seconds"] for stage in stages), 1),
            "seconds_in_all": result.record["timings"]["total"],
            **scores.of(str(result.student)),
        }
        add_row(row | made_with(), RESULTS)


def tables() -> Iterator[str]:
    """Go through a table for each part, in the order of the rows."""
    rows = read_rows(RESULTS)
    parts = dict.fromkeys(row["part"] for row in rows)
    for part in parts:
        lines = []
        for row in rows:
            if row["part"] != part:
                continue
            lines.append(
                [
                    row["student"],
                    row["seed"],
                    f"{row['tokens']:,}" if "tokens" in row else "",
                    row.get("seconds", ""),
                    f"{row['parameters'] / 1e6:.1f}",
                    f"{row['milliseconds']:.1f}",
                    _written(row["sick_train"]),
                    _written(row["sick"]),
                    _written(row["squad_train"]),
                    _written(row["squad"]),
                    row["squad"]["share_of_teacher"],
                ]
            )
        headings = [part, "seed", "tokens", "seconds", "million parameters", "ms", "SICK train", "SICK"]
        yield table([*headings, "SQuAD train", "SQuAD MRR@10", "% of the teacher's"], lines)


def _written(score: Mapping[str, Any]) -> str:
    """A score with its interval."""
    low, high = score["interval"]
    return f"{score['value']:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wikipedia-en, tatoeba, SICK and SQuAD")
    parser.add_argument("--work", type=Path, help="folder for runs")
    parser.add_argument("--only", help="parts or students, between semicolons; default: all but best")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no student after so many")
    parser.add_argument("--table", action="store_true", help="print the rows as tables")
    arguments = parser.parse_args()
    known = [*dict.fromkeys(budget.part for budget in BUDGETS.values()), *BUDGETS]
    only = known
    if arguments.only:
        only = arguments.only.split(";")
    unknown = [name for name in only if name not in known and not name.startswith("best")]
    if unknown:
        parser.error(f"no part or student {', '.join(unknown)}; known: {'; '.join(known)}; best")
    if arguments.table:
        print("\n\n".join(tables()))
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    else:
        measure(arguments.data, arguments.work, only, arguments.minutes)


if __name__ == "__main__":
    main()
