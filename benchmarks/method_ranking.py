"""Which of six methods is best for a student of three layers, and which cannot be told apart.

    python benchmarks/method_ranking.py --data DATA --work runs/ranking
    python benchmarks/method_ranking.py --table

all-MiniLM-L6-v2 (6x384) becomes 3x384 on Wikipedia, by methods of different kinds. A run reads 0.6 million tokens from
the same start, layers 1, 3 and 6. Each method is trained with two rates. Its rate is the one whose student keeps more
of the teacher's scores on SICK's training split and SQuAD's training articles, the mean of both shares. By the same
figure, the best three methods get two more seeds.

All students with the rate of their method are then scored by SICK's test split (Spearman), by SQuAD's development
articles (MRR@10), and by the accuracy on SST-2 and MRPC after a fine-tuning on 2,000 rows of each. Two methods are told
apart where the 95 % interval of their difference, over the same rows of a measure, leaves out zero. A difference of
methods with several seeds is of the means over seeds.

DATA has `wikipedia-en`, SICK, SQuAD 1.1, SST-2 and MRPC. A row is added as soon as it is measured; a stopped run goes
on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from budgets import Scores, Texts, steps_for
from embedding_ablation import TEACHER, add_row, find, read_rows, read_table
from harness import made_with, run_script, table
from own_figures import Student
from trimmed_students import answers_of

RESULTS = Path(__file__).parent / "results" / "method_ranking.jsonl"
TOKENS = 600_000
TOKENS_A_STEP = 1_920
"""Of 64 sentences of Wikipedia, which have 30 tokens on average in its first file."""
RATES = (3e-4, 1e-3)
SEEDS = (1, 2, 3)
BEST = 3
"""Methods that are trained with all seeds."""
START = "the start, untrained"
LAYERS = [1, 3, 6]
METHODS: dict[str, Mapping[str, Any]] = {
    "minilmv2": {"name": "minilmv2", "relation_heads": 48},
    "hidden_states": {"name": "hidden_states", "mapping": LAYERS},
    "tinybert": {"name": "tinybert", "mapping": LAYERS},
    "mlkd_bert, stage 1": {"name": "mlkd_bert", "stage": 1, "mapping": LAYERS},
    "sentence_embedding": {"name": "sentence_embedding"},
    "mlm": {"name": "mlm"},
}
TUNED_TASKS = ("sst2", "mrpc")
TUNING = {"epochs": 3, "batch_size": 32, "learning_rates": 1e-4, "length": 64, "max_train_rows": 2_000}
MEASURES = ("sick", "squad", *TUNED_TASKS)
RESAMPLED = 1_000


@dataclass(frozen=True)
class Run:
    """A student of the comparison.

    Args:
        method: The name of its method, or of an untrained model.
        rate: Peak learning rate; 0 of an untrained one.
        seed: Of the order of its text, and of the weights that have no start.
    """

    method: str
    rate: float
    seed: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Run:
        """The run of a row."""
        return cls(row["method"], row["rate"], row["seed"])

    @property
    def name(self) -> str:
        """A name for folders and files."""
        letters = (letter if letter.isalnum() else "-" for letter in f"{self.method} {self.rate:g} {self.seed}")
        return "".join(letters)


class OutOfTimeError(Exception):
    """The minutes are over, and a student has no row."""


class Measurement:
    """Makes and scores students that have no row.

    Args:
        data: Folder with the public data.
        work: Folder for runs and answers.
        minutes: No student is begun after so many.
    """

    def __init__(self, data: Path, work: Path, minutes: float) -> None:
        self._data = data
        self._work = work
        self._ends = time.monotonic() + 60 * minutes
        self._texts = Texts(data, work / "text")
        self._scores = Scores(data)

    def distilled(self, run: Run) -> dict[str, Any]:
        """The row of a student as it is after its distillation.

        Raises:
            OutOfTimeError: if it has none, and the minutes are over.
        """
        import limbeck

        found = self._row("distilled", run)
        if found is not None:
            return found
        row: dict[str, Any] = {"kind": "distilled", "method": run.method, "rate": run.rate, "seed": run.seed}
        folder = TEACHER
        if run.method != "teacher":
            output = self._work / run.name
            result = limbeck.distill(self._recipe(run, output), overwrite=True)
            folder = str(result.student)
            stages = result.record["stages"]
            row["tokens"] = sum(stage["tokens"] for stage in stages)
            row["seconds"] = round(sum(stage["seconds"] for stage in stages), 1)
        row |= self._scores.of(folder)
        add_row(row | made_with(), RESULTS)
        return row

    def fine_tuned(self, run: Run) -> None:
        """Add the row of a student after its fine-tunings, and keep all its answers for comparisons.

        Raises:
            OutOfTimeError: if it has none, and the minutes are over.
        """
        import limbeck

        if self._row("fine-tuned", run) is not None and self.answers_file(run).is_file():
            return
        folder = TEACHER if run.method == "teacher" else str(self._work / run.name / "student")
        row: dict[str, Any] = {"kind": "fine-tuned", "method": run.method, "rate": run.rate, "seed": run.seed}
        public = answers_of(folder, self._data)
        answers = {"sick": public.cosines, "squad": public.reciprocal_ranks}
        overrides = [f"{name}={value}" for name, value in TUNING.items()]
        for task in TUNED_TASKS:
            output = self._work / f"{run.name}-{task}"
            made = limbeck.finetune(folder, task, output=output, data=self._data, preset="quick", overrides=overrides)
            answers[task] = right_answers(str(made.model), task, self._data)
            row[task] = round(100 * float(answers[task].mean()), 3)
        np.savez(self.answers_file(run), **answers)
        add_row(row | made_with(), RESULTS)

    def answers_file(self, run: Run) -> Path:
        """Where the answers of a student are kept."""
        return self._work / f"{run.name}.npz"

    def _row(self, kind: str, run: Run) -> dict[str, Any] | None:
        """Find the row of a student, or see that there is time for it."""
        for row in read_rows(RESULTS):
            if row["kind"] == kind and Run.of(row) == run:
                return row
        if time.monotonic() > self._ends:
            raise OutOfTimeError
        return None

    def _recipe(self, run: Run, output: Path) -> dict[str, Any]:
        """The recipe of a student; those of all methods differ in nothing but method, rate and seed."""
        method = METHODS.get(run.method, {})
        student = Student(steps_for(TOKENS, TOKENS_A_STEP), rate=run.rate, method=method)
        recipe = student.recipe([self._texts.source("wikipedia")], output, run.seed)
        recipe["evaluation"] = {"enabled": False}
        if run.method == START:
            recipe["stages"] = []
        return recipe


def right_answers(model: str, task: str, data: Path) -> NDArray[np.float64]:
    """Whether each development row of a task is answered right by a classifier, 1 or 0."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    rows = read_table(find(data, {"sst2": "SST-2/dev.tsv", "mrpc": "MRPC/dev.tsv"}[task]))
    tokenizer = AutoTokenizer.from_pretrained(model)
    classifier = AutoModelForSequenceClassification.from_pretrained(model).eval()
    right = []
    for start in range(0, len(rows), 64):
        batch = rows[start : start + 64]
        if task == "sst2":
            texts = [[row["sentence"] for row in batch]]
            labels = [int(row["label"]) for row in batch]
        else:
            texts = [[row[f"#{side} String"] for row in batch] for side in (1, 2)]
            labels = [int(row["Quality"]) for row in batch]
        inputs = tokenizer(*texts, truncation=True, max_length=TUNING["length"], padding=True, return_tensors="pt")
        with torch.inference_mode():
            classes = classifier(**inputs).logits.argmax(-1)
        right += (classes == torch.tensor(labels)).tolist()
    return np.array(right, dtype=np.float64)


def share_to_choose_by(row: Mapping[str, Any]) -> float:
    """The mean share of the teacher's scores on what students are chosen by."""
    return (row["sick_train"]["share_of_teacher"] + row["squad_train"]["share_of_teacher"]) / 2


def measure(data: Path, work: Path, minutes: float) -> None:
    """Measure what is missing: all rates, all seeds of the best methods, fine-tunings, differences."""
    measurement = Measurement(data, work, minutes)
    try:
        measurement.distilled(Run("teacher", 0.0, 0))
        measurement.distilled(Run(START, 0.0, 1))
        chosen = {}
        for method in METHODS:
            rows = [measurement.distilled(Run(method, rate, 1)) for rate in RATES]
            chosen[method] = max(rows, key=share_to_choose_by)
        best = sorted(chosen, key=lambda method: share_to_choose_by(chosen[method]), reverse=True)[:BEST]
        print(f"The best methods by the scores to choose by: {', '.join(best)}.", flush=True)
        runs = {method: [Run.of(row)] for method, row in chosen.items()}
        for method in best:
            for seed in SEEDS[1:]:
                run = Run(method, chosen[method]["rate"], seed)
                measurement.distilled(run)
                runs[method].append(run)
        runs[START] = [Run(START, 0.0, 1)]
        measurement.fine_tuned(Run("teacher", 0.0, 0))
        for several in runs.values():
            for run in several:
                measurement.fine_tuned(run)
    except OutOfTimeError:
        print("The time is over; the same command goes on.", flush=True)
        return
    labels = np.array([float(row["relatedness_score"]) for row in read_table(find(data, "SICK_test_annotated.txt"))])
    answers = {}
    for method, several in runs.items():
        answers[method] = [dict(np.load(measurement.answers_file(run))) for run in several]
    measured = {(row["first"], row["second"]) for row in read_rows(RESULTS) if row["kind"] == "difference"}
    for first, second in combinations(answers, 2):
        if (first, second) not in measured:
            differences = difference_of(answers[first], answers[second], labels)
            row = {"kind": "difference", "first": first, "second": second, **differences}
            add_row(row | made_with(), RESULTS)


Answers = Sequence[Mapping[str, NDArray[np.float64]]]
"""What the students of a method answer to the rows of each measure, a mapping each seed."""


def difference_of(first: Answers, second: Answers, labels: NDArray[np.float64]) -> dict[str, Any]:
    """Differences of two methods by each measure in points, with their 95 % intervals over rows.

    Args:
        first: Of the one method.
        second: Of the other.
        labels: Relatedness of SICK's pairs.
    """

    def mean_score(several: Answers, measure_name: str, rows: NDArray[np.int64]) -> float:
        scores = []
        for answers in several:
            chosen = answers[measure_name][rows]
            if measure_name == "sick":
                scores.append(float(spearmanr(chosen, labels[rows]).statistic))
            else:
                scores.append(float(chosen.mean()))
        return 100 * float(np.mean(scores))

    found = {}
    generator = np.random.default_rng(0)
    for measure_name in MEASURES:
        count = len(first[0][measure_name])
        draws = [np.arange(count), *(generator.integers(count, size=count) for _ in range(RESAMPLED))]
        differences = [mean_score(first, measure_name, rows) - mean_score(second, measure_name, rows) for rows in draws]
        low, high = np.percentile(differences[1:], [2.5, 97.5])
        interval = [round(float(low), 3), round(float(high), 3)]
        found[measure_name] = {"difference": round(differences[0], 3), "interval": interval}
    return found


def tables() -> Iterator[str]:
    """Go through the tables: rates, students after fine-tuning, and differences."""
    rows = read_rows(RESULTS)
    by_kind: dict[str, list[dict[str, Any]]] = {"distilled": [], "fine-tuned": [], "difference": []}
    for row in rows:
        by_kind[row["kind"]].append(row)
    lines = []
    for row in by_kind["distilled"]:
        scores = [row[name]["value"] for name in ("sick_train", "squad_train", "sick", "squad")]
        share = f"{share_to_choose_by(row):.2f}"
        lines.append([row["method"], f"{row['rate']:g}", row["seed"], row.get("tokens", ""), share, *scores])
    headings = ["method", "rate", "seed", "tokens", "% to choose by", "SICK train", "SQuAD train", "SICK", "SQuAD"]
    yield table(headings, lines)
    lines = [[row["method"], row["seed"], *(row[task] for task in TUNED_TASKS)] for row in by_kind["fine-tuned"]]
    yield table(["fine-tuned", "seed", *TUNED_TASKS], lines)
    lines = []
    for row in by_kind["difference"]:
        cells = []
        for name in MEASURES:
            low, high = row[name]["interval"]
            cells.append(f"{row[name]['difference']:+.2f} ({low:+.2f} to {high:+.2f})")
        lines.append([f"{row['first']} less {row['second']}", *cells])
    yield table(["difference", *MEASURES], lines)


if __name__ == "__main__":
    run_script(__doc__ or "", "wikipedia-en, SICK, SQuAD, SST-2 and MRPC", measure, tables)
