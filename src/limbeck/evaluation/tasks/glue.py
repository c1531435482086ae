"""GLUE: nine tasks and the diagnostic set, in the layout of its zip and on the Hub.

Source: GLUE (arXiv 1804.07461); row counts as its data card on the Hub states them. Rows of QQP's zip that lack fields
are left out, as the Hub does.
"""

from __future__ import annotations

from collections.abc import Mapping

from limbeck.evaluation.tasks.definition import Columns, FileSource, HubSource, SplitSource, TaskDefinition
from limbeck.evaluation.tasks.task import SplitFacts, Task, TaskKind

HUB_NAME = "nyu-mll/glue"
NLI_LABELS = ("entailment", "neutral", "contradiction")
_FILES = {"train": ("train",), "validation": ("dev", "validation"), "test": ("test",)}

GLUE_SUBMISSIONS: dict[tuple[str, str], tuple[str, bool]] = {
    ("cola", "test"): ("CoLA.tsv", False),
    ("sst2", "test"): ("SST-2.tsv", False),
    ("mrpc", "test"): ("MRPC.tsv", False),
    ("qqp", "test"): ("QQP.tsv", False),
    ("stsb", "test"): ("STS-B.tsv", False),
    ("mnli", "test_matched"): ("MNLI-m.tsv", True),
    ("mnli", "test_mismatched"): ("MNLI-mm.tsv", True),
    ("qnli", "test"): ("QNLI.tsv", True),
    ("rte", "test"): ("RTE.tsv", True),
    ("wnli", "test"): ("WNLI.tsv", False),
    ("ax", "test"): ("AX.tsv", True),
}
"""Task and split to the file that the leaderboard asks for, and whether it holds class names rather than numbers."""


def glue_tasks() -> tuple[TaskDefinition, ...]:
    """Return the tasks, in the order of GLUE's own tables."""
    pair = Columns("sentence1", "sentence2", id="index")
    return (
        _cola(),
        _plain(
            "sst2",
            "SST-2",
            ("accuracy",),
            (67349, 872, 1821),
            Columns("sentence", id="index"),
            Columns("sentence", id="idx"),
            labels=("negative", "positive"),
        ),
        _plain(
            "mrpc",
            "MRPC",
            ("accuracy", "f1"),
            (3668, 408, 1725),
            Columns("#1 String", "#2 String", label="Quality", id="index"),
            Columns("sentence1", "sentence2", id="idx"),
            labels=("not_equivalent", "equivalent"),
        ),
        _plain(
            "qqp",
            "QQP",
            ("accuracy", "f1"),
            (363846, 40430, 390965),
            Columns("question1", "question2", label="is_duplicate", id="id"),
            Columns("question1", "question2", id="idx"),
            labels=("not_duplicate", "duplicate"),
        ),
        _plain(
            "stsb",
            "STS-B",
            ("pearson", "spearman"),
            (5749, 1500, 1379),
            Columns("sentence1", "sentence2", label="score", id="index"),
            Columns("sentence1", "sentence2", id="idx"),
            kind="regression",
        ),
        _mnli(),
        _plain(
            "qnli",
            "QNLI",
            ("accuracy",),
            (104743, 5463, 5463),
            Columns("question", "sentence", id="index"),
            Columns("question", "sentence", id="idx"),
            labels=("entailment", "not_entailment"),
        ),
        _plain(
            "rte",
            "RTE",
            ("accuracy",),
            (2490, 277, 3000),
            pair,
            Columns("sentence1", "sentence2", id="idx"),
            labels=("entailment", "not_entailment"),
        ),
        _plain(
            "wnli",
            "WNLI",
            ("accuracy",),
            (635, 71, 146),
            pair,
            Columns("sentence1", "sentence2", id="idx"),
            labels=("not_entailment", "entailment"),
        ),
        _ax(),
    )


def glue_files(folders: tuple[str, ...], stems: tuple[str, ...], columns: Columns) -> tuple[FileSource, ...]:
    """Return every name that a GLUE table may have: each folder with each stem."""
    return tuple(FileSource(f"{folder}/{stem}.tsv", columns) for folder in folders for stem in stems)


def _folders(name: str, title: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((title, name, title.replace("-", ""))))


def _facts(rows: tuple[int, int, int]) -> dict[str, SplitFacts]:
    train, validation, test = rows
    return {
        "train": SplitFacts(train),
        "validation": SplitFacts(validation),
        "test": SplitFacts(test, labelled=False),
    }


def _plain(
    name: str,
    title: str,
    metrics: tuple[str, ...],
    rows: tuple[int, int, int],
    in_files: Columns,
    on_hub: Columns,
    *,
    labels: tuple[str, ...] = (),
    kind: TaskKind = "classification",
    headers: Mapping[str, tuple[str, ...]] | None = None,
) -> TaskDefinition:
    """A task of three splits, whose files have one set of columns and whose Hub copy another."""
    sources = {}
    for split, stems in _FILES.items():
        header = (headers or {}).get(split, ())
        files = glue_files(_folders(name, title), stems, in_files)
        files = tuple(FileSource(file.path, file.columns, header) for file in files)
        sources[split] = SplitSource(files, HubSource(HUB_NAME, split, on_hub, name))
    task = Task(
        name=name,
        title=title,
        group="glue",
        kind=kind,
        labels=labels,
        metrics=metrics,
        train="train",
        select="validation",
        scored=("validation",),
        predicted=("test",),
        splits=_facts(rows),
    )
    return TaskDefinition(task, sources)


def _cola() -> TaskDefinition:
    header = ("source", "label", "original_label", "sentence")
    return _plain(
        "cola",
        "CoLA",
        ("matthews",),
        (8551, 1043, 1063),
        Columns("sentence", id="index"),
        Columns("sentence", id="idx"),
        labels=("unacceptable", "acceptable"),
        headers={"train": header, "validation": header},
    )


def _mnli() -> TaskDefinition:
    in_files = Columns("sentence1", "sentence2", label="gold_label", id="index")
    on_hub = Columns("premise", "hypothesis", id="idx")
    stems = {
        "train": ("train",),
        "validation_matched": ("dev_matched", "validation_matched"),
        "validation_mismatched": ("dev_mismatched", "validation_mismatched"),
        "test_matched": ("test_matched",),
        "test_mismatched": ("test_mismatched",),
    }
    rows = (392702, 9815, 9832, 9796, 9847)
    task = Task(
        name="mnli",
        title="MNLI",
        group="glue",
        kind="classification",
        labels=NLI_LABELS,
        metrics=("accuracy",),
        train="train",
        select="validation_matched",
        scored=("validation_matched", "validation_mismatched"),
        predicted=("test_matched", "test_mismatched"),
        splits={
            split: SplitFacts(count, labelled=not split.startswith("test"))
            for split, count in zip(stems, rows, strict=True)
        },
    )
    sources = {
        split: SplitSource(
            glue_files(_folders("mnli", "MNLI"), names, in_files), HubSource(HUB_NAME, split, on_hub, "mnli")
        )
        for split, names in stems.items()
    }
    return TaskDefinition(task, sources)


def _ax() -> TaskDefinition:
    files = glue_files(
        ("AX", "ax", "diagnostic"), ("diagnostic", "AX", "test"), Columns("sentence1", "sentence2", id="index")
    )
    task = Task(
        name="ax",
        title="AX",
        group="glue",
        kind="classification",
        labels=NLI_LABELS,
        metrics=("matthews",),
        train="mnli:train",
        select="mnli:validation_matched",
        scored=(),
        predicted=("test",),
        splits={"test": SplitFacts(1104, labelled=False)},
    )
    hub = HubSource(HUB_NAME, "test", Columns("premise", "hypothesis", id="idx"), "ax")
    return TaskDefinition(task, {"test": SplitSource(files, hub)})
