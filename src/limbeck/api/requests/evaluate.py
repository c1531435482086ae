"""The options of `limbeck evaluate` and `limbeck.evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any

from rich.console import Console

from limbeck.api.requests import completions, values
from limbeck.api.requests.fields import MEASURING, argument, option, request
from limbeck.api.requests.shared import LONGEST_SECONDS, console_option


@request
class EvaluateRequest:
    """Models and tasks to score them on, and how their costs are measured."""

    models: Any = argument(
        "Models to score: folders of runs or models, Hub names or package:NAME (of an installed package).",
        default=(),
        python="Folders of runs or models, `package:NAME` or Hub names; models of transformers or "
        "sentence-transformers, which are kept in the folder's `inputs`; results of `distill` "
        "and `finetune`. Several in a list, or one alone.",
        cls=list[str],
    )
    tasks: str | Path | Sequence[str | Path] = option(
        "Tasks, groups (glue, qa, cross_lingual …) and task files, separated by commas.",
        default="",
        python="Names of tasks and groups, and paths of task files, in a list or by commas; may be empty with `speed`.",
        cls=str,
        complete=completions.complete_list((*completions.TASK_GROUPS, *completions.TASKS)),
    )
    _: KW_ONLY
    output: str | Path = option("Output folder; parts that are finished there are not repeated.", cls=Path)
    data: str | Path | None = option(
        "Folder with the task files; default: hub, the Hugging Face Hub.",
        default=None,
        python='Folder with the tasks\' files; None or `"hub"` for the Hub.',
        cls=str,
        metavar="DIR",
    )
    as_is: bool = option("Score the models with the heads that they have, without any training.", default=False)
    classes: Mapping[str, str] | None = option(
        "With --as-is: the task's names for the model's classes, such as LABEL_0=entailment,…",
        default=None,
        python="For `as_is`, names of a model's classes to the task's names of them, such as `LABEL_0` to "
        "`entailment`.",
        cls=str,
        metavar="NAME=CLASS,…",
        reads=values.names,
    )
    preset: str | None = option(
        "minilmv2 (the default), minilm, elm, mlkd_bert (the default with --as-is), comparative_study, "
        "comparative_study_multilingual or quick.",
        default=None,
        python="Name of a protocol, see `limbeck.evaluation.protocols`; None for `minilmv2`, or, of models as they "
        "are, `mlkd_bert`, whose students were scored so.",
        complete=completions.complete(completions.PROTOCOLS),
    )
    average: str | None = option(
        "Average over the columns of a table in the preset's paper, such as table3.",
        default=None,
        python="Table of the preset's paper to average as; None for the preset's usual average.",
        metavar="TABLE",
    )
    seeds: int | None = option(
        "Number of seeds per grid point; default: the paper's.",
        default=None,
        python="Runs of every grid point; None is the number of the protocol.",
        least=1,
    )
    teacher: Any = option(
        "Model to compare the others with, evaluated as well; default: the first model.",
        default=None,
        python="Model to compare the others with, given as they are, and evaluated too; None for the first model.",
        cls=str,
    )
    names: Sequence[str] = option(
        "Name of a model in tables; may be repeated, in the order of the models, the teacher last.",
        default=(),
        python="Names of the models in tables, in their order, then the teacher's; for those without one it is the "
        "last part of their own.",
        cls=list[str],
        flag="--name",
        reads=values.texts,
    )
    checkpoints: str | Path | None = option(
        "A run whose student is scored at every checkpoint, too.",
        default=None,
        python="The folder of a run whose student is scored at each checkpoint too, a row each; `models` may be empty.",
        cls=Path,
        metavar="RUN",
    )
    workers: int = option(
        "Number of processes that measure side by side; one per GPU.",
        default=1,
        python="Processes that measure side by side. With several, a script has to call this under its main guard.",
        least=1,
    )
    overrides: str | Sequence[str] = option(
        "Override a setting: --set epochs=3, --set cola.epochs=10",
        default=(),
        python="`setting=value` or `task.setting=value` each, or one alone.",
        cls=list[str],
        flag="--set",
        metavar="SETTING=VALUE",
        reads=values.texts,
    )
    keep_weights: str | None = option(
        "Keep fine-tuned models: the best of each model and task, or all.",
        default=None,
        python='`"best"` keeps the best fine-tuned model of each model and task, `"all"` every one; they lie '
        "in the folder `weights`. None keeps none.",
        metavar="best|all",
        complete=completions.complete(("best", "all")),
    )
    speed: bool = option("Also measure sizes, operations and latency.", default=False, panel=MEASURING)
    batch_sizes: Sequence[int] = option(
        "With --speed: batch sizes, separated by commas.",
        default=(1, 16, 32, 64),
        python="Texts a pass, for the latency.",
        cls=str,
        panel=MEASURING,
        reads=values.numbers,
    )
    lengths: Sequence[int] = option(
        "With --speed: text lengths in tokens, separated by commas.",
        default=(128,),
        python="Tokens a text, for the latency.",
        cls=str,
        panel=MEASURING,
        reads=values.numbers,
    )
    device: str = option('Where the latency is measured: `"auto"`, `"cpu"`, `"cuda"` …', default="auto")
    seconds: float = option(
        "With --speed: time for all measurements.",
        default=60.0,
        python="The time for all measurements of latency together.",
        least=0.01,
        most=LONGEST_SECONDS,
        panel=MEASURING,
    )
    console: Console | None = console_option()
