"""Which cheap judge of a layer mapping orders students as their long training does.

    python benchmarks/mapping_judges.py --data DATA --work runs/judges
    python benchmarks/mapping_judges.py --table

all-MiniLM-L6-v2 (6x384) becomes 3x384. A mapping names three of the teacher's layers: the student starts with copies
of them, and learns their hidden states. The text is Wikipedia and everyday sentences, a half each. Rows:

- `long`: a mapping after 1,000 steps of 64 sentences; four mappings have a second seed;
- `proxy`: ELM's judge, the fitness of a mapping after 50, 150 and 500 steps on a tenth of the text, by a search's own
  scores on held-out text;
- `fit`: the student before any training, its layers fitted in closed form: the error on held-out text, and Spearman on
  SICK's training split.

The fitness is measured after the long training too: it is what a proxy of as many steps on all text would say.

Mappings of a row's kind train side by side under one teacher. The long training is scored by Spearman on SICK's test
split and by MRR@10 on SQuAD's development articles. `--table` prints the rows, the processor seconds of each judge for
one mapping, and the rank correlations of judges with the long training, with 95 % intervals by resampling mappings.
With OMP_NUM_THREADS=1 the processor seconds are those of an idle core, whatever else the machine does.

DATA has `wikipedia-en`, `tatoeba/english.txt`, SICK and SQuAD 1.1. Rows are added as soon as they are measured; a
stopped run goes on where it was. Several processes can measure at the same time: each takes the next group of mappings
that no other process has, of all parts or of one (`--only long`).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

from budgets import BOTH, Scores, Texts
from embedding_ablation import TEACHER, add_row, load_encoder, read_rows
from harness import made_with, run_script, table
from own_figures import Student, correlation

RESULTS = Path(__file__).parent / "results" / "mapping_judges.jsonl"
MAPPINGS = (
    *((1, 2, 6), (1, 3, 6), (1, 4, 6), (1, 5, 6), (2, 3, 6), (2, 4, 6), (2, 5, 6), (3, 4, 6), (3, 5, 6), (4, 5, 6)),
    *((1, 3, 5), (2, 4, 5)),
)
"""All that end with the last layer, and two that end before it."""
TWICE = ((1, 2, 6), (1, 4, 6), (2, 4, 6), (4, 5, 6))
"""Mappings whose long training has a second seed."""
LONG_STEPS = 1_000
PROXY_STEPS = (50, 150, 500)
PROXY_SHARE = 0.1
FEWEST_JUDGED = 5
"""Fewest mappings whose order a correlation can tell something of."""
TOGETHER = 4
"""Mappings that train side by side."""
FIT_TOKENS = 50_000
OUTCOMES = ("sick", "squad")
PARTS = ("fit", "proxy", "long", "second seed")
OWN_FITNESS = "fitness of the long training"
ERROR_OF_FIT = "held-out error of the fit"
JUDGES = (
    *(f"proxy of {steps} steps" for steps in PROXY_STEPS),
    OWN_FITNESS,
    ERROR_OF_FIT,
    "SICK of the fit",
)


def recipe_of(mapping: Sequence[int], steps: int, texts: Texts, output: Path, seed: int) -> dict[str, Any]:
    """The recipe of a mapping's training."""
    method = {"name": "hidden_states", "mapping": list(mapping)}
    student = Student(steps, layers=tuple(mapping), method=method)
    recipe = student.recipe([texts.source(kind) for kind in BOTH], output, seed)
    recipe["corpus"]["mix"] = {"weights": [1] * len(BOTH)}
    recipe["evaluation"] = {"enabled": False}
    return recipe


class Measurement:
    """Measures what has no row.

    Args:
        data: Folder with the public data.
        work: Folder for text and students.
        minutes: Nothing is begun after so many.
    """

    def __init__(self, data: Path, work: Path, minutes: float) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._work = work
        self._ends = time.monotonic() + 60 * minutes
        self._texts = Texts(data, work / "text")
        self._scores = Scores(data)

    def fit(self, mapping: Sequence[int]) -> dict[str, Any]:
        """Fit a mapping's student in closed form, and score it by what students may be chosen by."""
        import limbeck

        output = self._work / f"fit-{name_of(mapping)}"
        recipe = recipe_of(mapping, 1, self._texts, output, 1)
        recipe["student"]["initialise"]["fit"] = {"tokens": FIT_TOKENS}
        recipe["corpus"] |= {"unit": "sentence", "length": 64}
        recipe["stages"] = []
        began = time.process_time()
        result = limbeck.distill(recipe, overwrite=True)
        seconds = time.process_time() - began
        fit = result.record["student"]["initialisation"]["fit"]
        scored = self._scores.score(load_encoder(str(result.student)), "sick_train")
        return {"error": fit["error"], "sick_train": scored["value"], "processor_seconds": round(seconds, 1)}

    def trained(self, mappings: Sequence[Sequence[int]], steps: int, seed: int, share: float) -> Iterator[Any]:
        """Train mappings side by side, and go through them: each with its student, its fitness and its seconds."""
        from rich.console import Console

        from limbeck.recipe.load import load_recipe
        from limbeck.recipe.plan import plan_run
        from limbeck.search.held_out_scores import HeldOutScores
        from limbeck.training.proxy import Proxy

        began = time.process_time()
        plans = []
        for mapping in mappings:
            recipe = recipe_of(mapping, steps, self._texts, self._work / "unused", seed)
            plans.append(plan_run(load_recipe(recipe)))
        proxy = Proxy(plans[0], share=share, console=Console())
        candidates = proxy.train(plans)
        seconds = (time.process_time() - began) / len(mappings)
        scorer = HeldOutScores(proxy)
        for mapping, plan, candidate in zip(mappings, plans, candidates, strict=True):
            scores = scorer.measure(candidate.student, plan, "")
            fitness = sum(scores.values()) / len(scores)
            facts = {"fitness": round(fitness, 3), "processor_seconds": round(seconds, 1)}
            yield mapping, candidate.student, facts

    def public_scores(self, student: Any, mapping: Sequence[int], seed: int) -> dict[str, Any]:
        """Score a trained student by its mean vectors."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Normalize, Pooling, Transformer
        from transformers import AutoTokenizer

        from limbeck.models.locating import resolve_model

        folder = self._work / f"student-{name_of(mapping)}-seed-{seed}"
        student.save_pretrained(folder)
        AutoTokenizer.from_pretrained(str(resolve_model(TEACHER))).save_pretrained(folder)
        modules = [Transformer(str(folder), max_seq_length=256), Pooling(student.config.hidden_size), Normalize()]
        encoder = SentenceTransformer(modules=modules, device="cpu")
        return {outcome: self._scores.score(encoder, outcome) for outcome in OUTCOMES}

    def measure(self, part: str) -> None:
        """Measure the mappings that have no row of a part, until the minutes are over."""
        if part == "fit":
            self._measure_fits()
        elif part == "proxy":
            self._measure_proxies()
        elif part == "long":
            self._measure_long_trainings(1, MAPPINGS)
        else:
            self._measure_long_trainings(2, TWICE)

    def _measure_fits(self) -> None:
        """Add the rows of fitted starts."""
        for group in self._missing("fit", MAPPINGS):
            for mapping in group:
                add({"kind": "fit", "mapping": list(mapping), "seed": 1} | self.fit(mapping))

    def _measure_proxies(self) -> None:
        """Add the rows of ELM's judge."""
        for steps in PROXY_STEPS:
            for group in self._missing("proxy", MAPPINGS, steps=steps):
                for mapping, _, facts in self.trained(group, steps, 1, PROXY_SHARE):
                    add({"kind": "proxy", "mapping": list(mapping), "seed": 1, "steps": steps} | facts)

    def _measure_long_trainings(self, seed: int, mappings: Sequence[tuple[int, ...]]) -> None:
        """Add the rows of long trainings with a seed."""
        for group in self._missing("long", mappings, seed=seed):
            for mapping, student, facts in self.trained(group, LONG_STEPS, seed, 1.0):
                scores = self.public_scores(student, mapping, seed)
                row = {"kind": "long", "mapping": list(mapping), "seed": seed, "steps": LONG_STEPS}
                add(row | facts | scores)

    def _missing(
        self, kind: str, mappings: Sequence[tuple[int, ...]], **fields: int
    ) -> Iterator[Sequence[tuple[int, ...]]]:
        """Go through the mappings that have no row of a kind, in groups, until the minutes are over.

        A group that another process measures is left to it.
        """
        missing = _without_row(kind, mappings, fields)
        for start in range(0, len(missing), TOGETHER):
            if time.monotonic() > self._ends:
                print("The time is over; the same command goes on.", flush=True)
                return
            group = missing[start : start + TOGETHER]
            numbers = "-".join(str(value) for value in fields.values())
            with (self._work / f"{kind}-{numbers}-{name_of(group[0])}.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                # Another process may have measured the group by now.
                group = _without_row(kind, group, fields)
                if group:
                    yield group


def _without_row(
    kind: str, mappings: Sequence[tuple[int, ...]], fields: Mapping[str, int]
) -> Sequence[tuple[int, ...]]:
    """Return the mappings that have no row of a kind with these values of fields."""
    measured = set()
    for row in read_rows(RESULTS):
        if row["kind"] == kind and all(row[name] == value for name, value in fields.items()):
            measured.add(tuple(row["mapping"]))
    return [mapping for mapping in mappings if mapping not in measured]


def measure(data: Path, work: Path, minutes: float, parts: Sequence[str]) -> None:
    """Measure the mappings that have no row of some parts."""
    measurement = Measurement(data, work, minutes)
    for part in parts:
        measurement.measure(part)


def name_of(mapping: Sequence[int]) -> str:
    """A name of files."""
    return "-".join(str(layer) for layer in mapping)


def add(row: Mapping[str, Any]) -> None:
    """Add a row."""
    add_row(dict(row) | made_with(), RESULTS)


def judged() -> list[dict[str, Any]]:
    """For each mapping with a long training: its figures and those of the judges that have one, more always better."""
    by_mapping: dict[tuple[int, ...], dict[str, Any]] = {}
    for row in read_rows(RESULTS):
        figures = by_mapping.setdefault(tuple(row["mapping"]), {"mapping": tuple(row["mapping"])})
        if row["kind"] == "fit":
            figures[ERROR_OF_FIT] = -row["error"]
            figures["SICK of the fit"] = row["sick_train"]
        elif row["kind"] == "proxy":
            figures[f"proxy of {row['steps']} steps"] = row["fitness"]
        elif row["seed"] == 1:
            figures[OWN_FITNESS] = row["fitness"]
            for outcome in OUTCOMES:
                figures[outcome] = row[outcome]["value"]
        else:
            for outcome in OUTCOMES:
                figures[f"{outcome}, seed 2"] = row[outcome]["value"]
    return [figures for figures in by_mapping.values() if figures.keys() >= set(OUTCOMES)]


def seconds_of_judges() -> dict[str, float]:
    """The mean processor seconds of a judge for one mapping."""
    gathered: dict[str, list[float]] = {}
    for row in read_rows(RESULTS):
        names = [OWN_FITNESS]
        if row["kind"] == "fit":
            names = list(JUDGES[-2:])
        elif row["kind"] == "proxy":
            names = [f"proxy of {row['steps']} steps"]
        for name in names:
            gathered.setdefault(name, []).append(row["processor_seconds"])
    return {name: sum(seconds) / len(seconds) for name, seconds in gathered.items()}


def tables() -> Iterator[str]:
    """Go through the tables: the mappings, and the judges.

    Raises:
        SystemExit: if too few mappings have a long training.
    """
    rows = judged()
    if len(rows) < FEWEST_JUDGED:
        raise SystemExit(
            f"{len(rows)} mappings have a long training, and the tables need {FEWEST_JUDGED}: measure them first."
        )
    all_figures = [*JUDGES, *OUTCOMES, *(f"{outcome}, seed 2" for outcome in OUTCOMES)]
    shown = [name for name in all_figures if any(name in row for row in rows)]
    best_first = sorted(rows, key=lambda row: row["sick"], reverse=True)
    lines = []
    for row in best_first:
        figures = [_shown(name, row.get(name)) for name in shown]
        lines.append([row["mapping"], *figures])
    yield table(["mapping", *shown], lines)

    # The two mappings that end before the last layer are far below all others, and so in the order of every judge.
    last_layer = max(max(mapping) for mapping in MAPPINGS)
    with_last_layer = [row for row in rows if row["mapping"][-1] == last_layer]
    seconds = seconds_of_judges()
    lines = []
    for judge in JUDGES:
        if judge in seconds:
            lines.append([judge, f"{seconds[judge]:.0f}", *_order_of(judge, rows), *_order_of(judge, with_last_layer)])
    headings = ["mappings", *OUTCOMES]
    of_last_layer = [f"{heading}, last layer" for heading in headings]
    yield table(["judge", "processor seconds", *headings, *of_last_layer], lines)


def _shown(name: str, figure: float | None) -> str:
    """Return a figure for a table; the error, which is negative among the figures of judges, as it was measured."""
    if figure is None:
        return ""
    if name == ERROR_OF_FIT:
        figure = -figure
    return f"{figure:.3f}"


def _order_of(judge: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the number of mappings with a figure of a judge, and its rank correlation with each outcome over them."""
    with_figure = [row for row in rows if judge in row]
    cells = [str(len(with_figure))]
    for outcome in OUTCOMES:
        if len(with_figure) < FEWEST_JUDGED:
            cells.append("")
            continue
        middle, low, high = correlation(with_figure, judge, outcome)
        cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
    return cells


if __name__ == "__main__":
    run_script(__doc__ or "", "wikipedia-en, tatoeba, SICK and SQuAD", measure, tables, parts=PARTS)
