"""The jobs of a first day, each with its longest silence: `python benchmarks/first_day.py --data DATA --work DIR`.

A classifier, a tagger, a question answerer and a reranker are fine-tuned and distilled, an embedding model is
distilled, and students are evaluated, exported and shown. The rows of all jobs come from DATA, which has SST-2 of GLUE,
CoNLL-2000, SQuAD and Wikipedia wherever they lie below it. Every command runs with its output in pipes, or with
`--terminal` in a terminal, and `benchmarks/silence.py` notes when it writes. `--embedding-teacher` is a second, larger
model for the embedding student.

A row is added to `benchmarks/results/first_day.jsonl` as soon as its job is done; a stopped run goes on with the next
job. `--table` prints what has been measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedding_ablation import TEACHER, add_row, find, read_rows
from harness import made_with, table
from silence import listen, silences_between

RESULTS = Path(__file__).parent / "results" / "first_day.jsonl"
REVIEWS, SENTENCES, QUESTIONS = 1_000, 1_000, 400
"""Labelled rows of the classifier, of the tagger, and of the question answerer and the reranker."""
DOCUMENTS = 4
"""Documents of a query of the reranker: its own paragraph and the paragraphs of the next questions."""
WIKIPEDIA_FILES = 8
PIPES, TERMINAL = "pipes", "terminal"


@dataclass(frozen=True)
class Job:
    """A command of the first day.

    Args:
        name: Its name in the table.
        arguments: The command behind `limbeck`.
    """

    name: str
    arguments: str


def write_reviews(data: Path, folder: Path) -> None:
    """Write a CSV file of reviews whose columns have names of their own."""
    lines = (find(data, "SST-2") / "train.tsv").read_text(encoding="utf-8").splitlines()[1 : REVIEWS + 1]
    training_rows = len(lines) * 4 // 5
    for name, part in (("reviews.csv", lines[:training_rows]), ("reviews-dev.csv", lines[training_rows:])):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["review", "verdict"])
            for line in part:
                text, label = line.split("\t")
                verdict = "positive" if label == "1" else "negative"
                writer.writerow([text.strip(), verdict])


def write_tags(data: Path, folder: Path) -> None:
    """Write sentences with the chunk tag of each word."""
    blocks = (find(data, "conll2000") / "train.txt").read_text(encoding="utf-8").strip().split("\n\n")
    rows = []
    for block in blocks[:SENTENCES]:
        words = [line.split() for line in block.splitlines()]
        rows.append({"tokens": [word[0] for word in words], "tags": [word[-1] for word in words]})
    write_rows_of(folder, "tags", rows)


def write_questions(data: Path, folder: Path) -> None:
    """Write questions with their paragraphs and answers, and queries with a relevant document and others."""
    content = json.loads(find(data, "v1.1-train.json").read_text(encoding="utf-8"))
    questions: list[dict[str, Any]] = []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"][:1]:
                answer = question["answers"][0]
                answers = {"text": [answer["text"]], "answer_start": [answer["answer_start"]]}
                row = {"id": question["id"], "question": question["question"], "context": paragraph["context"]}
                questions.append(row | {"answers": answers})
    questions = questions[:QUESTIONS]
    write_rows_of(folder, "questions", questions)

    queries = []
    for place, row in enumerate(questions[:-DOCUMENTS]):
        others = [following["context"] for following in questions[place + 1 : place + DOCUMENTS]]
        documents = [row["context"], *others]
        labels = [1] + [0] * len(others)
        queries.append({"query": row["question"], "documents": documents, "labels": labels})
    write_rows_of(folder, "queries", queries)


def write_tasks(folder: Path) -> None:
    """Write a task file for each kind of rows; the development rows are the last fifth."""
    tasks: dict[str, dict[str, Any]] = {
        "reviews": {
            "type": "classification",
            "labels": ["negative", "positive"],
            "columns": {"text": "review", "label": "verdict"},
        },
        "tags": {"type": "token_classification", "labels": tag_names(folder)},
        "questions": {"type": "question_answering"},
        "queries": {"type": "ranking", "columns": {"query": "query", "documents": "documents", "label": "labels"}},
    }
    for name, task in tasks.items():
        suffix = "csv" if name == "reviews" else "jsonl"
        files = {"train": f"{name}.{suffix}", "validation": f"{name}-dev.{suffix}"}
        content = {"name": name, **task, "files": files}
        (folder / f"{name}.yaml").write_text(json.dumps(content, indent=1), encoding="utf-8")


def tag_names(folder: Path) -> list[str]:
    """Return the tags of all rows, `O` first."""
    names: set[str] = set()
    for file in ("tags.jsonl", "tags-dev.jsonl"):
        for line in (folder / file).read_text(encoding="utf-8").splitlines():
            names.update(json.loads(line)["tags"])
    return ["O", *sorted(names - {"O"})]


def write_rows_of(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, the last fifth as development rows."""
    training_rows = len(rows) * 4 // 5
    for file, part in ((f"{name}.jsonl", rows[:training_rows]), (f"{name}-dev.jsonl", rows[training_rows:])):
        lines = [json.dumps(row) + "\n" for row in part]
        (folder / file).write_text("".join(lines), encoding="utf-8")


def jobs(data: Path, embedding_teacher: str, minutes: str) -> list[Job]:
    """Return the commands in their order, as they are typed in the folder of the jobs."""
    listed = [
        Job(
            "embedding model: distill",
            f"distill --teacher {embedding_teacher} --student 3 --corpus wikipedia --minutes {minutes} "
            "--output embedding",
        )
    ]
    for name in ("reviews", "tags", "questions", "queries"):
        quick = "--preset quick --seeds 1 --set epochs=1"
        listed += [
            Job(f"{name}: finetune", f"finetune {TEACHER} --task {name}.yaml --output {name}-teacher {quick}"),
            Job(
                f"{name}: distill",
                f"distill --teacher {name}-teacher/model --student 3 --corpus {name}.yaml --minutes {minutes} "
                f"--output {name}-student",
            ),
        ]
    return [
        *listed,
        Job(
            "embedding model: evaluate",
            f"evaluate embedding/student --tasks sick_cosine,squad_retrieval --data {shlex.quote(str(data))} "
            "--output scores",
        ),
        Job("embedding model: export", "export embedding --format onnx-int8 --output int8"),
        Job("two runs: report", "report reviews-student tags-student --output report.html"),
    ]


def measure(data: Path, folder: Path, embedding_teacher: str, minutes: str, output: str) -> None:
    """Run the jobs that have no row of this output, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    wikipedia = folder / "wikipedia"
    wikipedia.mkdir(exist_ok=True)
    for file in sorted(find(data, "wikipedia-en").glob("*.txt"))[:WIKIPEDIA_FILES]:
        shutil.copy(file, wikipedia / file.name)
    write_reviews(data, folder)
    write_tags(data, folder)
    write_questions(data, folder)
    write_tasks(folder)

    measured = {row["job"] for row in read_rows(RESULTS) if row["output"] == output}
    # The tasks' files are named as a user in this folder would name them.
    os.chdir(folder)
    for job in jobs(data, embedding_teacher, minutes):
        if job.name in measured:
            continue
        log_file = Path(f"{job.name.replace(': ', '-').replace(' ', '-')}.log")
        command = [sys.executable, "-m", "limbeck", *shlex.split(job.arguments)]
        with log_file.open("wb") as log:
            arrivals, seconds, code = listen(command, log, terminal=output == TERMINAL)
        if code != 0:
            sys.exit(f"{job.name} ended with {code}; see {log_file}")
        longest = silences_between(arrivals, seconds)[0]
        row = {
            "job": job.name,
            "output": output,
            "seconds": round(seconds, 1),
            "first_output": round(arrivals[0].seconds, 2),
            "longest_silence": round(longest.seconds, 1),
            "after": longest.before[:100],
        }
        add_row(row | made_with(), RESULTS)


def main() -> None:
    """Measure, or print what has been measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/first-day"))
    parser.add_argument("--embedding-teacher", default=TEACHER)
    parser.add_argument("--minutes", default="2", help="minutes of training of each student")
    parser.add_argument("--terminal", dest="output", action="store_const", const=TERMINAL, default=PIPES)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        measure(arguments.data, arguments.work, arguments.embedding_teacher, arguments.minutes, arguments.output)
    rows = read_rows(RESULTS)
    headings = ("job", "output", "seconds", "first_output", "longest_silence")
    print(table(headings, [[row[heading] for heading in headings] for row in rows]))


if __name__ == "__main__":
    main()
