"""Similarity of sentence vectors, without fine-tuning: STS-B and SICK-R.

Sources: STS benchmark (arXiv 1708.00055), SICK (LREC 2014, Marelli et al.).
"""

from __future__ import annotations

from limbeck.evaluation.tasks.definition import Columns, FileSource, HubSource, SplitSource, TaskDefinition
from limbeck.evaluation.tasks.glue import glue_files
from limbeck.evaluation.tasks.task import SplitFacts, Task

_STS_HEADER = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")


def similarity_tasks() -> tuple[TaskDefinition, ...]:
    """Return STS-B and SICK-R; both are scored on their test sets, or, where those are not there, on what is."""
    return _stsb(), _sick()


def _stsb() -> TaskDefinition:
    columns = Columns("sentence1", "sentence2", label="score")
    sources = {}
    for split, stem in (("validation", "dev"), ("test", "test")):
        own = tuple(
            FileSource(path, columns, _STS_HEADER) for path in (f"sts-{stem}.csv", f"stsbenchmark/sts-{stem}.csv")
        )
        # GLUE keeps the scores of the test set to itself.
        glue = glue_files(("STS-B", "stsb"), ("dev", "validation"), columns) if split == "validation" else ()
        sources[split] = SplitSource((*own, *glue), HubSource("sentence-transformers/stsb", split, columns))
    task = Task(
        name="stsb_cosine",
        title="STS-B (cosine)",
        group="similarity",
        kind="similarity",
        metrics=("spearman", "pearson"),
        train=None,
        select=None,
        scored=("test",),
        splits={"validation": SplitFacts(1500), "test": SplitFacts(1379)},
    )
    return TaskDefinition(task, sources, ("validation",))


def _sick() -> TaskDefinition:
    columns = Columns("sentence_A", "sentence_B", label="relatedness_score", id="pair_ID")
    on_hub = Columns("sentence_A", "sentence_B", label="relatedness_score", id="id")
    # The Hub's copy has fewer rows than the source.
    files = {
        "train": (4500, 4439, ("SICK_train.txt",)),
        "validation": (500, 495, ("SICK_trial.txt",)),
        "test": (4927, 4906, ("SICK_test_annotated.txt", "SICK_test.txt")),
    }
    sources = {
        split: SplitSource(
            tuple(FileSource(name, columns) for name in names),
            HubSource("RobZamp/sick", split, on_hub, revision="refs/convert/parquet", published_rows=hub_rows),
        )
        for split, (_, hub_rows, names) in files.items()
    }
    task = Task(
        name="sick_cosine",
        title="SICK-R (cosine)",
        group="similarity",
        kind="similarity",
        metrics=("spearman", "pearson"),
        train=None,
        select=None,
        scored=("test",),
        splits={split: SplitFacts(rows) for split, (rows, _, _) in files.items()},
    )
    return TaskDefinition(task, sources, ("validation", "train"))
