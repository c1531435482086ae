"""Collect finished quickstart runs into a result file, with Spearman on labelled pairs if a file is given.

    limbeck quickstart
    limbeck quickstart --corpus texts/
    python benchmarks/quickstart.py runs/quickstart runs/quickstart-texts --pairs SICK_test_annotated.txt

The pair file is tab-separated with a header and the columns sentence_A, sentence_B and relatedness_score.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from limbeck.evaluation import pair_similarities
from limbeck.models.loading import load_model
from limbeck.models.tokenizers import load_tokenizer

RESULTS = Path(__file__).parent / "results" / "quickstart.json"


def read_pairs(path: Path) -> tuple[list[tuple[str, str]], list[float]]:
    """Read pairs and their scores."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row["sentence_A"], row["sentence_B"]) for row in rows], [float(row["relatedness_score"]) for row in rows]


def spearman(folder: str, pairs: list[tuple[str, str]], scores: list[float]) -> float:
    """Spearman of a model's cosine similarities with the scores."""
    similarities = pair_similarities(load_model(folder), load_tokenizer(folder), pairs)
    return round(float(spearmanr(similarities, scores).statistic), 4)


def collect(run: Path, pairs: Path | None) -> dict[str, Any]:
    """Make one row of a run's record."""
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    evaluation = record["evaluation"]
    row = {
        "corpus": [Path(source).name for source in record["recipe"]["corpus"]["sources"]],
        "commit": record["git_commit"],
        "created": record["created"],
        "hardware": record["hardware"],
        "versions": record["versions"],
        "timings_seconds": record["timings"],
        "peak_memory_bytes": record["peak_memory_bytes"],
        "stages": [
            {key: stage[key] for key in ("name", "steps", "tokens", "seconds", "tokens_per_second", "padding_share")}
            for stage in record["stages"]
        ],
        "evaluation": {key: evaluation[key] for key in ("teacher", "student", "latency", "agreement")},
    }
    if pairs is not None:
        sentences, scores = read_pairs(pairs)
        row["pairs"] = {
            "file": pairs.name,
            "count": len(scores),
            "teacher_spearman": spearman(record["recipe"]["teacher"]["model"], sentences, scores),
            "student_spearman": spearman(str(run / "student"), sentences, scores),
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--pairs", type=Path)
    arguments = parser.parse_args()
    rows = [collect(run, arguments.pairs) for run in arguments.runs]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    for row in rows:
        print(json.dumps({key: row.get(key) for key in ("corpus", "timings_seconds", "pairs")}, indent=2))


if __name__ == "__main__":
    main()
