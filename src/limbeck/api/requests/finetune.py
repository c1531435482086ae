"""The options of `limbeck finetune` and `limbeck.finetune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.requests import completions, values
from limbeck.api.requests.fields import TRAINING, argument, option, request
from limbeck.api.requests.shared import console_option
from limbeck.evaluation.plan.request import FINE_TUNING_PRESET


@request
class FinetuneRequest:
    """A model, and the task that it is fine-tuned on."""

    model: Any = argument(
        "Model to fine-tune: a run's folder, a model's folder, a Hub name or package:NAME (of an installed package).",
        python="A run's folder, a model's folder, `package:NAME` or a Hub name; or a model of transformers, with its "
        "tokenizer as (model, tokenizer) where that is not found where it was loaded from.",
        cls=str,
    )
    task: str | Path = option(
        "Name of a task, or a task file.", cls=str, complete=completions.complete(completions.TASKS)
    )
    _: KW_ONLY
    output: str | Path = option(
        "Output folder; runs that are finished there are not repeated.",
        python="The folder; the model is `model` in it.",
        cls=Path,
    )
    data: str | Path | None = option(
        "Folder with the task's files; default: hub, the Hugging Face Hub.",
        default=None,
        python='Folder with the task\'s files; None or `"hub"` for the Hub.',
        cls=str,
        metavar="DIR",
    )
    preset: str = option(
        "Protocol whose grid to try: quick, comparative_study (one point), elm, minilmv2 …",
        default=FINE_TUNING_PRESET,
        python="Name of a protocol, see `limbeck.evaluation.protocols`.",
        panel=TRAINING,
        complete=completions.complete(completions.PROTOCOLS),
    )
    seeds: int | None = option(
        "Number of seeds per grid point; default: the protocol's.",
        default=None,
        python="Runs of every grid point; None is the number of the protocol.",
        least=1,
        panel=TRAINING,
    )
    workers: int = option(
        "Number of processes that train side by side; one per GPU.",
        default=1,
        python="Processes that train. With more than one, a script has to call this under its main guard.",
        least=1,
        panel=TRAINING,
    )
    overrides: str | Sequence[str] = option(
        "Override a setting: --set epochs=3; a list makes a grid.",
        default=(),
        python="`setting=value` each, or one alone; one learning rate and one number of epochs are one grid point.",
        cls=list[str],
        flag="--set",
        metavar="SETTING=VALUE",
        panel=TRAINING,
        reads=values.texts,
    )
    console: Console | None = console_option()
