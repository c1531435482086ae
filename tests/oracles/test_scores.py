"""Scores of classes, several labels and values equal those of `sklearn` and `scipy`.

Each trial goes the whole way that `limbeck evaluate --as-is` goes: a task file, a file of rows in any order and
spelling, a head with its classes in an order of its own, and batches of one row or many.
"""

import itertools
import json
import math
import random
import tempfile
import warnings
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
import yaml
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import ConstantInputWarning, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, matthews_corrcoef
from transformers import BertConfig

from limbeck.evaluation.evaluators import head_outputs
from limbeck.evaluation.evaluators.head_match import match_head
from limbeck.evaluation.plan.points import AsIsPoint
from limbeck.evaluation.tasks.loading import load_task
from limbeck.kinds.registry import KINDS
from limbeck.kinds.scoring import score
from limbeck.models.tokenizers import load_tokenizer
from tests.oracles.generated import on_generated
from tests.support.tasks import WORDS, prepare, tiny_folder

NAMES = ("no", "yes", "not sure", "C++", "C#", "1 star", "Ärger", "喜び", "0", "NO WAY")
NAMES_OF_CLASSES = st.permutations(NAMES).flatmap(lambda names: st.integers(2, 6).map(lambda count: names[:count]))
NUMBERS = st.integers(0, 5)
SEEDS = st.integers(0, 10_000)
BATCHES = st.sampled_from([1, 32])
POINT = AsIsPoint(length=16, stride=0, bf16=False, max_scored_rows=None, classes=None, predict=False)
#: Texts that a tokenizer of whole words keeps apart: one of each three words.
TEXTS = [" ".join(words) for words in itertools.islice(itertools.product(WORDS, repeat=3), 64)]


class FixedHead(torch.nn.Module):
    """A model whose head gives each text the scores that were drawn for it."""

    name_or_path = "fixed"

    def __init__(self, classes, scores_of_tokens):
        super().__init__()
        self.config = BertConfig(id2label=dict(enumerate(classes)), type_vocab_size=2)
        self.device_of_batches = torch.nn.Parameter(torch.zeros(1))
        self.scores_of_tokens = scores_of_tokens

    def forward(self, input_ids, attention_mask, **_):
        scores = []
        for ids, is_token in zip(input_ids.tolist(), attention_mask.tolist(), strict=True):
            tokens = tuple(number for number, flag in zip(ids, is_token, strict=True) if flag)
            scores.append(self.scores_of_tokens[tokens])
        return {"logits": torch.tensor(scores)}


@cache
def tokenizer():
    return load_tokenizer(str(tiny_folder(Path(tempfile.mkdtemp()))))


def scores_of(description, labels, logits, *, classes, batch, seed):
    """Return limbeck's scores of rows that are written to a file in a random order.

    Args:
        description: The task, without its name and files.
        labels: The value of the column `label` of each row, or the values of several columns.
        logits: The scores of each row.
        classes: The classes of the head, in the order of `logits`.
        batch: Rows of a forward pass.
        seed: Decides the order of the rows.
    """
    rows = []
    for text, label in zip(TEXTS, labels, strict=False):
        columns = label if isinstance(label, dict) else {"label": label}
        rows.append({"text": text, **columns})
    random.Random(seed).shuffle(rows)
    scores_of_tokens = {}
    for text, scores in zip(TEXTS, logits, strict=False):
        scores_of_tokens[tuple(tokenizer()(text)["input_ids"])] = [float(score) for score in scores]
    assert len(scores_of_tokens) == len(rows)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = {"name": "own", "columns": {"text": "text"}, "files": {"validation": "rows.jsonl"}} | description
        (folder / "own.yaml").write_text(yaml.safe_dump(whole, allow_unicode=True), encoding="utf-8")
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        data = load_task(str(folder / "own.yaml"), data=None, splits=["validation"])
        prepared = prepare(data, POINT, tokenizer(), cache_dir=folder / "cache")
        head = FixedHead(classes, scores_of_tokens)
        match = match_head("it", head.config, data.task) if data.task.labels else SimpleNamespace(classes=None)
        with patch.object(head_outputs, "EVALUATION_BATCH", batch):
            predictions = head_outputs.predict(head, tokenizer(), prepared, "validation", classes=match.classes)
        return score(data.task, "validation", prepared.rows["validation"], predictions)


def in_the_order_of(classes, names, scores):
    """Return scores of classes `names` in the order of `classes`."""
    return [[row[names.index(name)] for name in classes] for row in scores]


@on_generated(
    1_000,
    names=NAMES_OF_CLASSES,
    rows=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=40),
    positive=NUMBERS,
    as_numbers=st.booleans(),
    batch=BATCHES,
    seed=SEEDS,
)
def test_scores_of_classes_are_those_of_sklearn(names, rows, positive, as_numbers, batch, seed):
    """Of 2 to 6 classes, of which some may have no row, or no prediction, or neither."""
    names = list(names)
    count = len(names)
    gold = [names[first % count] for first, _ in rows]
    predicted = [names[second % count] for _, second in rows]
    positive_class = names[positive % count]
    draw = np.random.default_rng(seed)
    logits = draw.uniform(-1, 0, (len(rows), count))
    for number, name in enumerate(predicted):
        logits[number, names.index(name)] = 1

    classes = random.Random(seed).sample(names, count)
    metrics = ["accuracy", "f1", "f1_macro", "micro_f1", "f1_weighted", "matthews"]
    description = {"type": "classification", "labels": names, "metric": metrics, "positive": positive_class}
    # Numbers in rows are those of the task's classes, unless names of classes have numbers themselves.
    labels = gold
    if as_numbers and not {"0", "1 star"} & {*names}:
        labels = [names.index(name) for name in gold]
    found = scores_of(
        description, labels, in_the_order_of(classes, names, logits), classes=classes, batch=batch, seed=seed
    )

    expected = {
        "accuracy": accuracy_score(gold, predicted),
        "f1": f1_score(gold, predicted, labels=[positive_class], average="macro", zero_division=0),
        "macro_f1": f1_score(gold, predicted, average="macro", zero_division=0),
        "micro_f1": f1_score(gold, predicted, average="micro", zero_division=0),
        "weighted_f1": f1_score(gold, predicted, average="weighted", zero_division=0),
        "matthews": 0.0 if len({*gold, *predicted}) == 1 else matthews_corrcoef(gold, predicted),
    }
    if positive_class in {*gold, *predicted} and len({*gold, *predicted}) == 2:
        of_two = f1_score(gold, predicted, pos_label=positive_class, average="binary", zero_division=0)
        assert of_two == pytest.approx(expected["f1"])
    assert found == pytest.approx(expected, abs=1e-12)
    assert list(found) == list(expected)


FLAGS_AND_SCORES = st.tuples(st.booleans(), st.integers(-12, 12).filter(bool))


def as_written(flags, names, layout):
    """Return the classes of a row as a list, as text, as numbers, or in a column for each class."""
    present = [name for name, flag in zip(names, flags, strict=True) if flag]
    if layout == "text":
        return "|".join(present)
    if layout == "columns":
        return {name: int(flag) for name, flag in zip(names, flags, strict=True)}
    if layout == "flags":
        return [int(flag) for flag in flags]
    return present


@on_generated(
    1_000,
    names=NAMES_OF_CLASSES,
    rows=st.lists(st.lists(FLAGS_AND_SCORES, min_size=6, max_size=6), min_size=1, max_size=20),
    absent=st.sets(NUMBERS, max_size=3),
    layout=st.sampled_from(["list", "text", "columns", "flags"]),
    batch=BATCHES,
    seed=SEEDS,
)
def test_scores_of_several_labels_are_those_of_sklearn(names, rows, absent, layout, batch, seed):
    names = list(names)
    count = len(names)
    flags = np.array([[flag for flag, _ in row[:count]] for row in rows])
    for number in absent:
        flags[:, number % count] = False
    logits = np.array([[number / 4 for _, number in row[:count]] for row in rows])
    given = logits > 0

    metrics = ["f1_micro", "macro_f1", "weighted_f1", "accuracy", "mean_average_precision"]
    description = {"type": "multi_label", "metric": metrics, "labels": names}
    if layout == "columns":
        description["columns"] = {"text": "text", "label_columns": names}
    if layout == "flags":
        description["columns"] = {"text": "text", "label_lists": "flags"}
    classes = random.Random(seed).sample(names, count)
    found = scores_of(
        description,
        [as_written(row, names, layout) for row in flags],
        in_the_order_of(classes, names, logits),
        classes=classes,
        batch=batch,
        seed=seed,
    )

    has_rows = np.flatnonzero(flags.any(axis=0))
    precisions = [average_precision_score(flags[:, number], expit(logits[:, number])) for number in has_rows]
    expected = {"accuracy": accuracy_score(flags, given)}
    for average in ("micro", "macro", "weighted"):
        expected[f"{average}_f1"] = f1_score(flags, given, average=average, zero_division=0)
    expected["mean_average_precision"] = np.mean(precisions) if precisions else 0.0
    assert found == pytest.approx(expected, abs=1e-12)


# Eighths are the same in the float32 of a head and in float64.
EIGHTHS = st.integers(-400, 400).map(lambda number: number / 8)


@on_generated(1_000, rows=st.lists(st.tuples(EIGHTHS, EIGHTHS), min_size=1, max_size=40), batch=BATCHES, seed=SEEDS)
def test_scores_of_values_are_those_of_scipy(rows, batch, seed):
    gold, predicted = zip(*rows, strict=True)
    found = scores_of(
        {"type": "regression", "metric": ["pearson", "spearman"]},
        list(gold),
        [[value] for value in predicted],
        classes=["value"],
        batch=batch,
        seed=seed,
    )
    expected = {"pearson": by_scipy(pearsonr, gold, predicted), "spearman": by_scipy(spearmanr, gold, predicted)}
    assert found == pytest.approx(expected, abs=1e-12)


def by_scipy(correlation, gold, predicted):
    """Return a correlation, and 0 where it is undefined."""
    if len(gold) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        value = float(correlation(gold, predicted).statistic)
    return 0.0 if math.isnan(value) else value


@on_generated(
    1_000,
    rows=st.lists(st.lists(FLAGS_AND_SCORES, min_size=3, max_size=3), min_size=2, max_size=20),
    kind=st.sampled_from(["classification", "multi_label", "regression"]),
    seed=SEEDS,
)
def test_scores_of_held_out_rows_are_those_of_sklearn_and_scipy(rows, kind, seed):
    """The figure of rows that a run holds out of its training files."""
    random.Random(seed).shuffle(rows)
    flags = np.array([[int(flag) for flag, _ in row] for row in rows])
    logits = np.array([[number / 16 for _, number in row] for row in rows], np.float32)
    if kind == "classification":
        labels = flags.argmax(-1)
        expected = accuracy_score(labels, logits.argmax(-1))
    elif kind == "multi_label":
        labels = flags
        expected = f1_score(flags, logits > 0, average="micro", zero_division=0)
        if not flags.any() and not (logits > 0).any():
            expected = None
    else:
        labels = flags @ np.array([1.0, 2.0, 4.0])
        logits = logits[:, :1]
        expected = None
        if len(np.unique(labels)) > 1 and len(np.unique(logits)) > 1:
            expected = by_scipy(spearmanr, labels, logits[:, 0])
    predicted = KINDS[kind].held_out_predictions(torch.tensor(logits)).numpy()
    assert KINDS[kind].held_out_score(predicted, labels) == pytest.approx(expected, abs=1e-7)
