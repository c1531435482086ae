"""Rows of a ranking corpus and task from SQuAD's files: a question, its paragraph, and others of the same article.

    python benchmarks/reranker_rows.py --squad DIR --output DIR [--negatives 7] [--questions 0]

`v1.1-train.json` becomes `train.jsonl` and `v1.1-dev.json` `dev.jsonl`, with the columns `query`, `positive` and
`negatives`; `task.yaml` describes them. Paragraphs of one article share their words, so the right one is found by what
the question asks. The others are drawn by a seed; 0 takes all of the article.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

TASK = """name: squad_paragraphs
title: SQuAD paragraphs
type: ranking
columns: {query: query, documents: [positive, negatives]}
files: {train: train.jsonl, validation: dev.jsonl}
"""


def read_rows(path: Path, negatives: int, draw: random.Random) -> Iterator[dict[str, object]]:
    """A row for every question of a SQuAD file."""
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        contexts = list(dict.fromkeys(paragraph["context"] for paragraph in article["paragraphs"]))
        for paragraph in article["paragraphs"]:
            others = [context for context in contexts if context != paragraph["context"]]
            for question in paragraph["qas"]:
                chosen = draw.sample(others, min(negatives or len(others), len(others)))
                yield {"query": question["question"], "positive": paragraph["context"], "negatives": chosen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True, help="folder with v1.1-train.json and v1.1-dev.json")
    parser.add_argument("--output", type=Path, required=True, help="folder for the rows and the task")
    parser.add_argument("--negatives", type=int, default=7, help="other paragraphs of a question; 0: all")
    parser.add_argument("--questions", type=int, default=0, help="questions of each file, drawn; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    for source, name in (("v1.1-train.json", "train"), ("v1.1-dev.json", "dev")):
        draw = random.Random(f"{asked.seed}/{name}")
        rows = list(read_rows(asked.squad / source, asked.negatives, draw))
        if asked.questions:
            rows = draw.sample(rows, min(asked.questions, len(rows)))
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (asked.output / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{name}: {len(rows)} questions")
    (asked.output / "task.yaml").write_text(TASK, encoding="utf-8")


if __name__ == "__main__":
    main()
