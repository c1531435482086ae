"""Whether a run's own figures order students as public measures do: agreement beside SICK, passages beside SQuAD.

    python benchmarks/own_figures.py --data DATA --work runs/own-figures
    python benchmarks/own_figures.py --data DATA --work runs/own-figures --more-passages
    python benchmarks/own_figures.py --table

all-MiniLM-L6-v2 (6x384) becomes students of 3x384 on the same text, half of it Wikipedia (`wikipedia-en` below DATA),
half everyday sentences (`tatoeba/english.txt`). They differ in steps, rate, start and method. Each run measures its
agreement and its retrieval of passages on held-out text, as every run does. SICK's test split (Spearman) and the
articles of SQuAD's `v1.1-dev.json` (MRR@10) are scored afterwards by `limbeck.evaluate`.

`--more-passages` scores the finished students by the same measure on more text than a run of this size holds out: 2,000
passages of Wikipedia that no student has read.

Only students whose SICK is within six points of the best one's count. `--table` prints the rows, and the Spearman
correlation over students of each own figure with each public one, with 95 % intervals by resampling students. A row is
added as soon as it is measured; a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from embedding_ablation import TEACHER, add_row, encode, find, load_encoder, read_rows, reciprocal_ranks
from harness import made_with, table
from stored_targets import score

RESULTS = Path(__file__).parent / "results" / "own_figures.jsonl"
MORE_PASSAGES = Path(__file__).parent / "results" / "own_passages.jsonl"
SEED = 1
WIKIPEDIA_FILES = 6
EVERYDAY_SENTENCES = 40_000
MOST_POINTS = 6.0
"""Points of SICK below the best student at which a student still counts."""
RESAMPLED = 10_000
MOST_PASSAGES = 2_000
OWN = ("agreement", "passages", "more passages")
PUBLIC = ("sick", "squad")
TASKS = {"sick": ("sick_cosine", "spearman"), "squad": ("squad_retrieval", "mrr_at_10")}
"""The public measures, with the task and the metric of each."""

SENTENCES: dict[str, Any] = {
    "name": "sentence_embedding",
    "pooled_weight": 1.0,
    "hidden_weight": 30.0,
    "layer_weight": 9.0,
}


def sentence_stage(method: Mapping[str, Any], *, steps: int, rate: float = 1e-3) -> dict[str, Any]:
    """Return the stage of a recipe that trains on sentences by a method, with the quickstart's settings.

    Args:
        method: The method with its options.
        steps: Steps of 64 sentences.
        rate: Peak learning rate.
    """
    return {
        "method": dict(method),
        "text": {"unit": "sentence", "length": 64},
        "freeze": ["embeddings"],
        "training": {
            "max_steps": steps,
            "per_device_train_batch_size": 64,
            "learning_rate": rate,
            "warmup_steps": 0.05,
            "weight_decay": 0.01,
            "eval_strategy": "no",
            "save_strategy": "no",
        },
    }


@dataclass(frozen=True)
class Student:
    """A student of the comparison.

    Args:
        steps: Steps of 64 sentences.
        layers: The teacher's layers that it starts from, one for each of its own.
        rate: Peak learning rate.
        method: The method, without a mapping of layers where `layers` says it.
        fit: Tokens that its start is fitted on; 0 for copied layers.
    """

    steps: int
    layers: tuple[int, ...] = (1, 3, 6)
    rate: float = 1e-3
    method: Mapping[str, Any] = field(default_factory=lambda: SENTENCES)
    fit: int = 0

    def recipe(self, sources: Sequence[str], output: Path, seed: int = SEED) -> dict[str, Any]:
        """Return the recipe of a student that is as wide as its teacher."""
        method = dict(self.method)
        if "layer_weight" in method:
            # The last layer is held to the teacher's last by a term of its own.
            method["layer_mapping"] = dict(enumerate(self.layers[:-1], start=1))
        start: dict[str, Any] = {"layers": list(self.layers), "embeddings": "copied"}
        if self.fit:
            start["fit"] = {"tokens": self.fit}
        return {
            "output": str(output),
            "seed": seed,
            "teacher": {"model": TEACHER},
            "student": {"shape": f"{len(self.layers)}x384", "initialise": start, "dropout": 0.0},
            "corpus": {"sources": list(sources), "held_out": 0.03},
            "stages": [sentence_stage(method, steps=self.steps, rate=self.rate)],
        }


STUDENTS = {
    "40 steps": Student(40),
    "80 steps": Student(80),
    "160 steps": Student(160),
    "320 steps": Student(320),
    "640 steps": Student(640),
    "a third of the rate": Student(160, rate=3e-4),
    "three times the rate": Student(160, rate=3e-3),
    "layers 1, 2, 3": Student(160, layers=(1, 2, 3)),
    "layers 1, 2, 3, 480 steps": Student(480, layers=(1, 2, 3)),
    "layers 1, 2, 6": Student(160, layers=(1, 2, 6)),
    "layers 2, 4, 6": Student(160, layers=(2, 4, 6)),
    "equal weights": Student(160, method={"name": "sentence_embedding", "pooled_weight": 1.0}),
    "equal weights, 480 steps": Student(480, method={"name": "sentence_embedding", "pooled_weight": 1.0}),
    "hidden states": Student(160, method={"name": "hidden_states"}),
    "relations": Student(160, method={"name": "minilmv2", "relation_heads": 48}, rate=3e-4),
    "fitted, 80 steps": Student(80, layers=(1, 2, 6), rate=3e-4, fit=50_000),
}


def write_text(data: Path, folder: Path) -> list[str]:
    """Write everyday sentences, each a document, and return the sources of both kinds of text."""
    folder.mkdir(parents=True, exist_ok=True)
    everyday = folder / "everyday.txt"
    if not everyday.is_file():
        with find(data, "english.txt").open(encoding="utf-8") as file:
            sentences = [line.strip() for line in islice(file, EVERYDAY_SENTENCES)]
        everyday.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    articles = sorted(find(data, "wikipedia-en").glob("*.txt"))[:WIKIPEDIA_FILES]
    return [*map(str, articles), str(everyday)]


def measure(data: Path, work: Path, minutes: float) -> None:
    """Make and score the students that have no row, until the minutes are over."""
    import limbeck

    began = time.monotonic()
    sources = write_text(data, work / "text")
    measured = {row["student"] for row in read_rows(RESULTS)}
    for name, student in STUDENTS.items():
        if name in measured:
            continue
        if time.monotonic() - began > 60 * minutes:
            print("The time is over; the same command goes on.", flush=True)
            return
        output = _folder(work, name)
        result = limbeck.distill(student.recipe(sources, output), overwrite=True)
        evaluation = result.record["evaluation"]
        public = score(Path(result.student), data, work, dict(TASKS.values()))
        row = {
            "student": name,
            "steps": student.steps,
            "agreement": evaluation["agreement"]["spearman"],
            "agreement_interval": evaluation["agreement"]["interval"],
            "passages": evaluation["student"]["retrieval"]["mrr_at_10"],
            "passages_interval": evaluation["student"]["retrieval"]["interval"],
            "teacher_passages": evaluation["teacher"]["retrieval"]["mrr_at_10"],
            **{name: round(public[task], 3) for name, (task, _) in TASKS.items()},
            "seed": SEED,
        }
        add_row(row | made_with(), RESULTS)


def measure_more_passages(data: Path, work: Path) -> None:
    """Score the teacher and the finished students by retrieval among passages of text that no student has read."""
    from limbeck.core import intervals
    from limbeck.evaluation.passages import build_passage_pairs

    files = sorted(find(data, "wikipedia-en").glob("*.txt"))[WIKIPEDIA_FILES:]
    articles = [file.read_text(encoding="utf-8") for file in files]
    pairs = build_passage_pairs(articles, MOST_PASSAGES)
    queries = [query for query, _ in pairs]
    passages = [passage for _, passage in pairs]
    folders = {"teacher": TEACHER}
    for row in read_rows(RESULTS):
        folders[row["student"]] = str(_folder(work, row["student"]) / "student")

    measured = {row["student"] for row in read_rows(MORE_PASSAGES)}
    for name, folder in folders.items():
        if name in measured:
            continue
        encoder = load_encoder(folder)
        ranks = reciprocal_ranks(encode(encoder, queries), encode(encoder, passages), range(len(pairs)))
        row = {
            "student": name,
            "passages": len(pairs),
            "mrr_at_10": round(float(ranks.mean()), 4),
            "interval": [round(end, 4) for end in intervals.of_many(ranks.tolist())],
        }
        add_row(row | made_with(), MORE_PASSAGES)


def _folder(work: Path, student: str) -> Path:
    """The folder of a student's run."""
    return work / student.replace(" ", "-").replace(",", "")


def measured_rows() -> list[dict[str, Any]]:
    """The rows of students, each with its score among more passages.

    Raises:
        SystemExit: if a student was not scored among them yet.
    """
    more = {row["student"]: row["mrr_at_10"] for row in read_rows(MORE_PASSAGES)}
    rows = read_rows(RESULTS)
    for row in rows:
        if row["student"] not in more:
            raise SystemExit(f"'{row['student']}' was not scored among more passages; run --more-passages first.")
        row["more passages"] = more[row["student"]]
    return rows


def counted(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of students that are near the best one on SICK."""
    best = max(row["sick"] for row in rows)
    return [row for row in rows if row["sick"] >= best - MOST_POINTS]


def correlation(rows: Sequence[Mapping[str, Any]], first: str, second: str) -> tuple[float, float, float]:
    """Return the Spearman correlation of two figures over students, and its 95 % interval."""
    figures = np.array([[row[first], row[second]] for row in rows])
    generator = np.random.default_rng(SEED)
    resampled = []
    for _ in range(RESAMPLED):
        chosen = figures[generator.integers(len(figures), size=len(figures))]
        if len(np.unique(chosen[:, 0])) > 1 and len(np.unique(chosen[:, 1])) > 1:
            resampled.append(spearmanr(chosen[:, 0], chosen[:, 1]).statistic)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(spearmanr(figures[:, 0], figures[:, 1]).statistic), float(low), float(high)


def tables() -> Iterator[str]:
    """Go through the two tables: the students, and the correlations of those that count."""
    rows = sorted(measured_rows(), key=lambda row: row["sick"], reverse=True)
    near = counted(rows)
    lines = []
    for row in rows:
        name = row["student"] if row in near else f"{row['student']} (does not count)"
        lines.append([name, *(f"{row[figure]:.4f}" for figure in OWN), row["sick"], row["squad"]])
    yield table(["student", *OWN, "SICK", "SQuAD MRR@10"], lines)
    lines = []
    pairs = [(own, public) for own in OWN for public in PUBLIC]
    for first, second in [*pairs, PUBLIC, ("agreement", "passages")]:
        middle, low, high = correlation(near, first, second)
        lines.append([f"{first} with {second}", len(near), f"{middle:.2f}", f"{low:.2f} to {high:.2f}"])
    yield table(["figures", "students", "Spearman", "95 % interval"], lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with wikipedia-en, tatoeba, SICK and SQuAD")
    parser.add_argument("--work", type=Path, help="folder for runs")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin no student after so many")
    parser.add_argument("--more-passages", action="store_true", help="score finished students on more passages")
    parser.add_argument("--table", action="store_true", help="print the tables of the rows")
    arguments = parser.parse_args()
    if arguments.table:
        print("\n\n".join(tables()))
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    elif arguments.more_passages:
        measure_more_passages(arguments.data, arguments.work)
    else:
        measure(arguments.data, arguments.work, arguments.minutes)


if __name__ == "__main__":
    main()
