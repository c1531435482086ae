"""Tiny tasks: rows that a 2-layer BERT of width 32 can learn, and a folder that holds it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.evaluation.evaluators import prepared_task
from limbeck.evaluation.evaluators.evaluator import EVALUATORS, CellResult, ReadyCell, Share
from limbeck.evaluation.evaluators.prepared_task import PreparedTask, TokenKeys, draw_splits, notes_of_draws
from limbeck.evaluation.plan.cell import Cell
from limbeck.evaluation.plan.points import AsIsPoint, Point, SimilarityPoint, TrainingPoint
from limbeck.kinds.task import SplitFacts, Task, TaskData
from tests.support.models import make_teacher

WORDS = (
    *("the", "model", "teacher", "student", "layer", "text", "word", "we", "it", "on"),
    *("are", "of", "and", "to", "in", "is", "for", "that", "with"),
)
KEYS = TokenKeys("tokenizer", "rows", "training set")
POINT = TrainingPoint(
    learning_rate=1e-3,
    epochs=2,
    batch_size=8,
    length=32,
    stride=0,
    warmup=0.1,
    schedule="linear",
    weight_decay=0.01,
    group_by_length=False,
    best_epoch_by=None,
    bf16=False,
    max_train_rows=None,
    max_scored_rows=None,
)
QUESTION_POINT = replace(POINT, length=40, stride=8)


def tiny_folder(parent: Path, family: str = "bert", **changes) -> Path:
    """Save an encoder of two layers without a head."""
    return make_teacher(parent, family, **{"layers": 2, "hidden": 32, "heads": 4, "ffn": 64} | changes)


def run_cell(cell: Cell, prepared: PreparedTask, report: Share = lambda *_: None) -> CellResult:
    """Train and score one cell alone."""
    names = {TrainingPoint: "fine_tuned", AsIsPoint: "as_is", SimilarityPoint: "vectors"}
    evaluator = EVALUATORS[names[type(cell.point)]]
    ready = ReadyCell(cell, prepared)
    return evaluator.run(ready, evaluator.train([ready], report), report)


def prepare(data: TaskData, point: Point, tokenizer, *, keys: TokenKeys = KEYS, cache_dir: Path) -> PreparedTask:
    """Draw and encode the rows that a grid point asks for."""
    if isinstance(point, SimilarityPoint):
        rows = draw_splits(data, point.max_scored_rows)
        return PreparedTask(data.task, rows, notes=tuple(notes_of_draws(data, rows)))
    training = isinstance(point, TrainingPoint)
    return prepared_task.prepare(
        data,
        tokenizer,
        keys=keys,
        cache_dir=cache_dir,
        length=point.length,
        stride=point.stride,
        max_scored_rows=point.max_scored_rows,
        max_train_rows=point.max_train_rows if training else None,
        training=training,
        predicting=training or point.predict or not data.task.scored,
    )


def make_task(kind: str, **changes) -> Task:
    metrics = {
        "classification": ("accuracy", "f1"),
        "multi_label": ("micro_f1", "macro_f1", "accuracy", "mean_average_precision"),
        "regression": ("pearson", "spearman"),
        "question_answering": ("f1_answer", "exact_match"),
        "token_classification": ("f1_entity", "accuracy"),
        "similarity": ("spearman",),
    }
    labels = {"classification": ("no", "yes"), "multi_label": WORDS[:3], "token_classification": ("O", "B-X", "I-X")}
    trained = kind != "similarity"
    fields = {
        "name": f"tiny_{kind}",
        "title": kind.title(),
        "group": "own",
        "kind": kind,
        "labels": labels.get(kind, ()),
        "metrics": metrics[kind],
        "train": "train" if trained else None,
        "select": "validation" if trained else None,
        "scored": ("validation",),
        "predicted": ("test",) if trained else (),
        "splits": {"train": SplitFacts(), "validation": SplitFacts(), "test": SplitFacts(labelled=False)},
    }
    fields |= changes
    if "f1" in fields["metrics"]:
        fields.setdefault("positive", fields["labels"][1])
    return Task(**fields)


def make_rows(kind: str, count: int, seed: int, *, paired: bool = True, labelled: bool = True) -> list[LabelledRow]:
    generator = random.Random(seed)
    return [_row(kind, f"{seed}-{number}", generator, paired, labelled) for number in range(count)]


def make_data(kind: str, *, paired: bool = True, train: int = 36, **changes) -> TaskData:
    task = make_task(kind, **changes)
    splits = {"validation": make_rows(kind, 21, 1, paired=paired)}
    if task.train is not None:
        splits["train"] = make_rows(kind, train, 0, paired=paired)
        splits["test"] = make_rows(kind, 9, 2, paired=paired, labelled=False)
    return TaskData(task, splits)


def _row(kind: str, name: str, generator: random.Random, paired: bool, labelled: bool) -> LabelledRow:
    words = generator.choices(WORDS, k=generator.randint(3, 14))
    if kind == "question_answering":
        words = generator.choices(WORDS, k=generator.randint(20, 60))
        text = " ".join(words)
        place = generator.randrange(len(words))
        start = len(" ".join(words[:place])) + (place > 0)
        answers, starts = ((words[place],), (start,)) if labelled else ((), ())
        label = (start, start + len(words[place])) if labelled else None
        return LabelledRow(name, text, f"what is {words[place]} ?", label, answers=answers, answer_starts=starts)
    if kind == "token_classification":
        tags = [("model", "teacher").index(word) + 1 if word in ("model", "teacher") else 0 for word in words]
        return LabelledRow(name, WORD_GAP.join(words), None, tuple(tags) if labelled else None)
    pair = " ".join(generator.choices(WORDS, k=generator.randint(2, 8))) if paired else None
    if kind == "multi_label":
        return LabelledRow(
            name, " ".join(words), pair, tuple(int(word in words) for word in WORDS[:3]) if labelled else None
        )
    share = sum(word in ("model", "teacher", "student") for word in words) / len(words)
    label: float | int = int(share > 0.15) if kind == "classification" else round(5 * share, 2)
    return LabelledRow(name, " ".join(words), pair, label if labelled else None)
