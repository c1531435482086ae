"""Facts and options that several calls have in common: each function returns the field of one option."""

from pathlib import Path
from typing import Any

from limbeck.api.requests import completions, values
from limbeck.api.requests.fields import DISTILLED, argument, option

LONGEST_SECONDS = 86_400
"""The most time for a measurement: a day."""
LAST_SEED = 2**32 - 1
"""The largest seed of NumPy."""


def recipe_argument(description: str, python: str) -> Any:
    """Return the field of a recipe."""
    return argument(description, default=None, python=python, cls=Path, show_default=False)


def overrides_option() -> Any:
    """Return the field of overrides of a recipe."""
    return option(
        "Override a value: --set stages.0.training.learning_rate=1e-4",
        default=(),
        python="`path.to.key=value` each, or one alone; they win.",
        cls=list[str],
        flag="--set",
        metavar="PATH=VALUE",
        reads=values.changes,
    )


def teacher_option() -> Any:
    """Return the field of a run's teacher."""
    return option(
        "Folder, Hub name or package:NAME of the teacher; also the folder of a run or a fine-tuning, for its model.",
        default=None,
        python="A folder, `package:NAME` or a Hub name; or a model of transformers, alone or with its tokenizer as "
        "(model, tokenizer), a pipeline, a `SentenceTransformer` or a `CrossEncoder`; or what a model said: an array "
        "with a row for each text of `corpus`, or a dict of texts and vectors; or a recipe's teacher.",
        cls=str,
        metavar="MODEL",
        panel=DISTILLED,
    )


def student_option() -> Any:
    """Return the field of a run's student."""
    return option(
        'Shape of the student: "6x384" (layers x width), a preset, or how many layers of the teacher to keep; or a '
        "model's folder, from which the student starts.",
        default=None,
        python='A shape such as `"3x384"`, or a number of the teacher\'s layers; a model, or the path of one, from '
        "which the student starts; or the student of a recipe.",
        cls=str,
        metavar="SHAPE",
        panel=DISTILLED,
        complete=completions.complete(completions.STUDENTS),
    )


def corpus_option() -> Any:
    """Return the field of a run's text."""
    return option(
        "File, folder, glob, hub:NAME, installed-docs, installed-text or wordnet; may be repeated. Or a task: its name "
        "or task.yaml.",
        default=None,
        python="Files, folders or data sets by name; or a list of texts, rows as dicts, a `datasets.Dataset` or "
        "`DatasetDict` (its validation split is `development`), a table of pandas or Arrow, any iterable of texts "
        "or rows; or a recipe's corpus. Of labelled rows where the teacher does a task.",
        cls=list[str],
        metavar="SOURCE",
        panel=DISTILLED,
    )


def text_column_option() -> Any:
    """Return the field of the column of the text."""
    return option(
        "Column of the text, in tables and rows; see corpus.text_column of recipes.",
        default=None,
        metavar="NAME",
        panel=DISTILLED,
    )


def label_column_option() -> Any:
    """Return the field of the column of the label."""
    return option(
        "Column of the label, in labelled rows; see corpus.task.label_column of recipes.",
        default=None,
        metavar="NAME",
        panel=DISTILLED,
    )


def method_option() -> Any:
    """Return the field of a run's method."""
    return option(
        "Method, with all its stages; see `limbeck methods`.",
        default=None,
        python="A method's name, or a dict of it and its options; or a function under `register_as_method`. Its "
        "training is not chosen, only the student's start.",
        cls=str,
        metavar="METHOD",
        panel=DISTILLED,
        complete=completions.complete(completions.METHODS),
    )


def console_option() -> Any:
    """Return the field of Python's `console`, which no command has."""
    return option(
        "Where progress goes; by default to the terminal or the notebook, else to the logger `limbeck`.", default=None
    )
