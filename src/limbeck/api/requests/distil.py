"""The options of `limbeck distill` and `limbeck.distill`, and of `validate`, which checks the same recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from limbeck.api.requests import shared, values
from limbeck.api.requests.fields import TRAINING, option, request

if TYPE_CHECKING:
    from transformers import TrainerCallback, TrainingArguments

    from limbeck.recipe.schema import Recipe
else:
    # Importing them takes long, and a request looks into none of them.
    Recipe = TrainerCallback = TrainingArguments = Any


@request
class ValidateRequest:
    """A recipe to check, and options beside or in place of one."""

    recipe: Recipe | Mapping[str, Any] | str | Path | None = shared.recipe_argument(
        "The recipe (YAML).",
        "A recipe as `distill` takes it, which the other arguments change or replace; objects are kept in limbeck's "
        "cache.",
    )
    overrides: str | Sequence[str] = shared.overrides_option()
    _: KW_ONLY
    teacher: Any = shared.teacher_option()
    student: Any = shared.student_option()
    corpus: Any = shared.corpus_option()
    text_column: str | None = shared.text_column_option()
    label_column: str | None = shared.label_column_option()
    development: Any = option(
        "Labelled rows that teacher and student are scored on, given as those to train on.", default=None
    )
    tokenizer: Any = option(
        "Of a teacher that is a model without one; by default that of where it was loaded from.", default=None
    )
    method: Any = shared.method_option()
    training: Mapping[str, Any] | TrainingArguments | None = option(
        "Arguments of every stage; of `transformers.TrainingArguments` what differs from their defaults.", default=None
    )
    evaluation: Mapping[str, Any] | None = option(
        'Measurements at the end, as in a recipe: `{"tasks": ["mrpc"]}`; `{"enabled": False}` is nothing.',
        default=None,
    )
    seed: int | None = option("Seed of the run.", default=None, least=0, panel=TRAINING)


@request
class DistilRequest(ValidateRequest):
    """A run: a recipe, options beside or in place of one, and its folder."""

    recipe: Recipe | Mapping[str, Any] | str | Path | None = shared.recipe_argument(
        "The recipe (YAML).",
        "A `Recipe`, a dict (with objects in the places of names), or the path of a YAML file.",
    )
    _: KW_ONLY
    steps: int | None = option(
        "Training steps of every stage; 0 trains nothing, and the student is saved as it starts.",
        default=None,
        least=0,
        panel=TRAINING,
    )
    minutes: float | None = option(
        "Minutes of training in place of steps, all stages together; the measured rate gives the number of steps.",
        default=None,
        panel=TRAINING,
    )
    batch_size: int | None = option(
        "Blocks, rows or queries per step and device, in every stage.", default=None, least=1, panel=TRAINING
    )
    learning_rate: float | None = option("Peak learning rate of every stage.", default=None, panel=TRAINING)
    length: int | None = option("Longest block in tokens.", default=None, least=4, panel=TRAINING)
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] = option(
        "For the trainer of every stage, `transformers.TrainerCallback` objects or classes.",
        default=(),
        reads=values.several,
    )
    output: str | Path | None = option(
        "Output folder of the run.", default=None, python="The run's folder.", cls=str, metavar="DIR"
    )
    resume: bool = option(
        "Continue the run in the output folder.",
        default=False,
        python="Continue the run in the output folder, by its own recipe if no other is given; a finished one is "
        "returned as it is.",
    )
    overwrite: bool = option("Replace the run in the output folder.", default=False)
    console: Console | None = shared.console_option()
