"""F1, precision and recall of entities: seqeval's own, on tags of every scheme, consistent or not."""

import random
from dataclasses import replace

import pytest
from seqeval.metrics import f1_score, precision_score, recall_score

from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.entity_counts import count_entities
from limbeck.kinds.scoring import score

NAMES = ("f1_entity", "precision_entity", "recall_entity", "accuracy")
SCHEMES = {"BIO": ("B", "I"), "BIOES": ("B", "I", "E", "S")}


def drawn(parts, seed):
    """Tags without any order, twice: half of the words alike."""
    labels, generator = ("O", *(f"{part}-{kind}" for part in parts for kind in ("X", "Y-Z"))), random.Random(seed)
    gold = [generator.choices(range(len(labels)), k=generator.randint(1, 9)) for _ in range(30)]
    ours = [[n if generator.random() < 0.5 else generator.randrange(len(labels)) for n in tags] for tags in gold]
    rows = [LabelledRow(str(n), "", label=tuple(tags)) for n, tags in enumerate(gold)]
    return replace(TASKS["panx"], labels=labels, metrics=NAMES), rows, gold, ours


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_figures_are_those_of_seqeval(scheme, seed):
    task, rows, gold, ours = drawn(SCHEMES[scheme], seed)
    found = score(task, "validation.en", rows, ours)
    named = [[[task.labels[n] for n in tags] for tags in side] for side in (gold, ours)]
    for name, function in zip(NAMES, (f1_score, precision_score, recall_score), strict=False):
        assert found[name] == pytest.approx(function(*named), abs=1e-12)
    words = [same for a, b in zip(gold, ours, strict=True) for same in map(int.__eq__, a, b)]
    assert found["accuracy"] == pytest.approx(sum(words) / len(words))
    by_type = [count.figures()["f1_entity"] for count in count_entities(ours, rows, task).values()]
    assert by_type == pytest.approx(f1_score(*named, average=None).tolist())


@pytest.mark.parametrize("suffix", [False, True], ids=["PER_B", "B"])
def test_other_spellings_are_counted_as_seqeval_counts_them(suffix):
    parts = ("B", "I")
    types = ("X", "Y") if suffix else ("",)
    task, rows, gold, ours = drawn(parts, 0)
    labels = ("O", *(f"{kind}-{part}" if suffix else part for part in parts for kind in types))
    task = replace(task, labels=labels)
    gold, ours = ([[n % len(labels) for n in tags] for tags in side] for side in (gold, ours))
    rows = [replace(row, label=tuple(tags)) for row, tags in zip(rows, gold, strict=True)]
    named = [[[labels[n] for n in tags] for tags in side] for side in (gold, ours)]
    found = score(task, "validation.en", rows, ours)
    assert found["f1_entity"] == pytest.approx(f1_score(*named, suffix=suffix), abs=1e-12)


def test_nothing_predicted_is_zero():
    rows = [LabelledRow("0", "", label=(1, 2))]
    assert set(score(replace(TASKS["panx"], metrics=NAMES), "validation.en", rows, [[0, 0]]).values()) == {0.0}
