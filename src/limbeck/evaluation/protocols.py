"""Columns: what of a task's scores a table shows, named as the papers' tables name it.

| scored splits | columns | title |
|---|---|---|
| one | `rte` | RTE |
| matched and mismatched | `mnli-m`, `mnli-mm` | MNLI-m, MNLI-mm |
| languages of one split | `xnli`, their mean, and `xnli.de` of each | XNLI, XNLI de |
| others | `name`, then `name:split` | title, then title (split) |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from limbeck.core.registry import Registry
from limbeck.core.yaml import Strict
from limbeck.errors import RecipeError
from limbeck.evaluation.task import Task

_SUFFIXES = {"matched": "m", "mismatched": "mm"}


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: Names it, in published tables too.
        title: Heads it.
        splits: The scored splits whose mean it is.
        detail: Whether it is a part of another column, for the table of all scores only.
    """

    key: str
    title: str
    splits: tuple[str, ...]
    detail: bool = False


def task_columns(task: Task, scored: Sequence[str] | None = None) -> list[Column]:
    """Return the columns of a task, the main one first.

    Args:
        task: The task.
        scored: The splits that were scored; the task's own by default.
    """
    stems: dict[str, list[str]] = {}
    for split in task.scored if scored is None else scored:
        stems.setdefault(split.partition(".")[0], []).append(split)
    columns: list[Column] = []
    for index, (stem, splits) in enumerate(stems.items()):
        key, title = _name(task, stem, first=index == 0)
        columns.append(Column(key, title, tuple(splits)))
        if len(splits) > 1:
            for split in splits:
                part = _part(task, split)
                columns.append(Column(f"{key}.{part}", f"{title} {part}", (split,), detail=True))
    return columns


def _name(task: Task, stem: str, *, first: bool) -> tuple[str, str]:
    suffix = _SUFFIXES.get(stem.rpartition("_")[2])
    if suffix is not None:
        return f"{task.name}-{suffix}", f"{task.title}-{suffix}"
    return (task.name, task.title) if first else (f"{task.name}:{stem}", f"{task.title} ({stem})")


def _part(task: Task, split: str) -> str:
    """Return what tells a split from its neighbours: the language, said once where context and question agree."""
    parts = split.split(".")[1:]
    return parts[0] if len(set(parts)) == 1 else "-".join(parts)


# `FineTuning`: everything that decides how one task is fine-tuned, chosen among and scored.


Rate = Annotated[float, Field(gt=0, le=1)]
Epochs = Annotated[float, Field(gt=0, le=1000)]


class FineTuning(Strict):
    """The settings of one task; the product of rates and epochs is its grid.

    What is not here is as `transformers.TrainingArguments` has it: AdamW, gradients clipped to a norm of 1, no decay
    of biases and norms.
    """

    learning_rates: tuple[Rate, ...] = Field(min_length=1, description="Peak rates of the grid.")
    epochs: tuple[Epochs, ...] = Field(min_length=1, description="Epochs of the grid.")
    seeds: int = Field(default=1, ge=1, le=1000, description="Runs of every grid point, with seeds 1, 2, …")
    batch_size: int = Field(default=32, ge=1, description="Rows of a step.")
    length: int = Field(default=128, ge=4, description="Most tokens of a row, or of a window.")
    stride: int = Field(default=128, ge=0, description="Tokens of the context that neighbouring windows share.")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of the steps in which the rate rises.")
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = Field(
        default="linear", description="What the rate does after the warm-up."
    )
    weight_decay: float = Field(default=0.01, ge=0, description="Of AdamW.")
    group_by_length: bool = Field(default=False, description="Make batches of rows of similar length.")
    keep: Literal["last", "best_epoch"] = Field(
        default="last", description="Score the last weights, or those of the epoch that is best on the select split."
    )
    pick: Literal["mean", "best"] = Field(
        default="mean", description="Choose the grid point by the mean over seeds, or the one best run of all."
    )
    metric: str | None = Field(default=None, description="Chooses and fills the tables; unset: the task's first.")
    max_train_rows: int | None = Field(default=None, ge=1, description="Train on so many rows, drawn once for all.")
    max_scored_rows: int | None = Field(default=None, ge=1, description="Score on so many rows of every split.")
    bf16: bool | None = Field(
        default=None, description="Compute in bfloat16; unset: on a GPU that is fast in it, never on a CPU."
    )
    pooling: Literal["mean", "cls"] | None = Field(
        default=None, description="Of sentence vectors; unset: as the model's folder says, else mean."
    )

    @field_validator("learning_rates", "epochs", mode="before")
    @classmethod
    def _one_is_a_grid(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float) else value


# `Protocol`: the settings of every task by one paper, and how that paper averages.


Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Protocol:
    """How a paper fine-tunes.

    Attributes:
        name: As it is asked for.
        source: Paper, sections and tables.
        silent: What the paper does not say, and what is taken instead.
        base: What holds for all tasks.
        changes: Settings by kind of task, by group and by task; the more particular wins, in this order.
        average: The columns of the paper's average; empty: of all tasks that are fine-tuned.
        papers: Whose published rows stand beside the results; empty: all of them.
    """

    name: str
    source: str
    silent: str
    base: Changes
    changes: Mapping[str, Changes] = field(default_factory=dict)
    average: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()

    def settings(self, task: Task, overrides: Sequence[tuple[str | None, Changes]] = ()) -> FineTuning:
        """Return the settings of a task.

        Args:
            task: The task.
            overrides: (task or None for all tasks, settings) each; those of one task win.

        Raises:
            RecipeError: for a setting that does not exist or cannot have its value.
        """
        values: dict[str, Any] = dict(self.base)
        for key in (task.kind, task.group, task.name):
            values |= self.changes.get(key, {})
        for wanted in (None, task.name):
            for name, change in overrides:
                if name == wanted:
                    values |= change
        return checked(values)


def checked(values: Changes) -> FineTuning:
    """Make settings of plain values.

    Raises:
        RecipeError: naming the first that is wrong.
    """
    try:
        return FineTuning.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = f"{first['loc'][0]}: " if first["loc"] else ""
        given = f" (got {str(first['input'])[:80]!r})" if first["loc"] else ""
        message = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise RecipeError(f"--set {place}{message}{given}.") from None


# The protocols of the comparative study, for English and for multilingual models.


COMPARATIVE_STUDY = Protocol(
    name="comparative_study",
    source=(
        "Comparative study, appendix D: rate 2e-5 and batch 32 for all models and tasks; 3 epochs for GLUE, 6 for "
        "CoLA with English models and 10 with multilingual ones, 5 for XNLI; 3 seeds. Tables 5 and 6 (averages "
        "with and without CoLA)."
    ),
    silent=(
        "Length (128), warm-up and decay (0.1 and 0.01, as MiniLMv2); the metrics (F1 of QQP, which its figures "
        "fit, and of MRPC; Spearman of STS-B); which MNLI set (matched); question answering, which it does not "
        "evaluate (as GLUE, at length 384)."
    ),
    base={"learning_rates": 2e-5, "epochs": 3, "seeds": 3, "batch_size": 32, "length": 128},
    changes={
        "question_answering": {"length": 384, "stride": 128},
        "cola": {"epochs": 6},
        "mrpc": {"metric": "f1"},
        "qqp": {"metric": "f1"},
        "stsb": {"metric": "spearman"},
        "xnli": {"epochs": 5},
    },
    average=("mnli-m", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte"),
    papers=("comparative_study",),
)

COMPARATIVE_STUDY_MULTILINGUAL = replace(
    COMPARATIVE_STUDY,
    name="comparative_study_multilingual",
    changes={**COMPARATIVE_STUDY.changes, "cola": {"epochs": 10}},
)


# The protocol of ELM.


_SINGLE_SENTENCE: Changes = {"length": 64}

ELM = Protocol(
    name="elm",
    source=(
        "ELM, section 5.2 (GLUE: batch 32, rates {1e-5, 2e-5, 3e-5}, epochs {3, 5, 10}, length 64 for single "
        "sentences and 128 for pairs; SQuAD: length 384, 4 epochs, batch 16, rate 3e-5); table 2 (means of 3 "
        "runs; its averages follow from F1 where a task has two figures); appendix A.1 (Chinese tasks: the "
        "benchmark's own settings)."
    ),
    silent=(
        "Warm-up, decay and stride (BERT's 0.1, 0.01 and 128). The Chinese settings are CLUE's, as its README "
        "gives them for BERT-base: CMNLI 2e-5, batch 32, length 128, 3 epochs; CMRC 2018 3e-5, batch 32, length "
        "512, 2 epochs, warm-up 0.1; for CSL it gives none (CMNLI's, at length 256, since its texts are "
        "abstracts). XNLI, MLQA and XQuAD (as GLUE and SQuAD)."
    ),
    base={"learning_rates": (1e-5, 2e-5, 3e-5), "epochs": (3, 5, 10), "seeds": 3, "batch_size": 32, "length": 128},
    changes={
        "question_answering": {"learning_rates": 3e-5, "epochs": 4, "batch_size": 16, "length": 384, "stride": 128},
        "chinese": {"learning_rates": 2e-5, "epochs": 3, "batch_size": 32, "length": 128},
        "sst2": _SINGLE_SENTENCE,
        "cola": _SINGLE_SENTENCE,
        "mrpc": {"metric": "f1"},
        "qqp": {"metric": "f1"},
        "stsb": {"metric": "spearman"},
        "csl": {"length": 256},
        "cmrc2018": {"learning_rates": 3e-5, "epochs": 2, "length": 512},
    },
    average=("sst2", "mnli-m", "squad", "mrpc", "cola", "qnli", "qqp", "squad2"),
    papers=("elm",),
)


# The protocols of MiniLM and MiniLMv2.


_GLUE_RATES = (1e-5, 1.5e-5, 2e-5, 3e-5, 5e-5)
_SQUAD_RATES = (3e-5, 6e-5, 8e-5, 9e-5)
_CROSS_LINGUAL_RATES = (5e-5, 6e-5)
_TABLE_1 = ("squad2", "mnli-m", "qnli", "qqp", "rte", "sst2", "mrpc", "cola")

_BASE: Changes = {
    "learning_rates": _GLUE_RATES,
    "epochs": (3, 5, 10),
    "seeds": 4,
    "batch_size": 32,
    "length": 128,
    "warmup": 0.1,
    "weight_decay": 0.01,
}
_CHANGES: dict[str, Changes] = {
    "question_answering": {"learning_rates": _SQUAD_RATES, "epochs": 3, "length": 384, "stride": 128},
    "cola": {"epochs": 25},
    "xnli": {
        "learning_rates": _CROSS_LINGUAL_RATES,
        "epochs": 5,
        "batch_size": 128,
        "keep": "best_epoch",
        "pick": "best",
    },
    "mlqa": {"learning_rates": _CROSS_LINGUAL_RATES, "epochs": 3, "length": 512, "keep": "best_epoch"},
    "xquad": {"learning_rates": _CROSS_LINGUAL_RATES, "epochs": 3, "length": 512, "keep": "best_epoch"},
}

MINILMV2 = Protocol(
    name="minilmv2",
    source=(
        "MiniLMv2, appendix C (rates, epochs, batches, lengths, warm-up and decay of GLUE and SQuAD 2.0); tables "
        "1 and 3 (means of 4 runs, accuracy of QQP and MRPC, F1 of SQuAD 2.0, Pearson of STS-B); section 4.3 "
        "(XNLI: the best single model on the joint development set; MLQA: stopped early on English development "
        "data)."
    ),
    silent=(
        "The stride of windows (BERT's 128); warm-up and decay of XNLI and MLQA (as GLUE); what is stopped early "
        "by (the best epoch is kept); SQuAD 1.1 (as 2.0); XQuAD (as MLQA); WNLI and Chinese tasks (as GLUE and "
        "SQuAD)."
    ),
    base=_BASE,
    changes=_CHANGES,
    average=_TABLE_1,
    papers=("minilmv2",),
)

MINILM = Protocol(
    name="minilm",
    source=(
        "MiniLM, tables 2 to 7 (means of 4 runs, F1 of SQuAD 2.0, Matthews correlation of CoLA, accuracy of the "
        "rest) and section 4.3 (XNLI and MLQA, as MiniLMv2)."
    ),
    silent=(
        "All of rates, epochs, batches, lengths, warm-up and decay, which the paper leaves to its supplement: "
        "those of MiniLMv2 (appendix C), which repeats this paper's results in its own tables."
    ),
    base=_BASE,
    changes=_CHANGES,
    average=_TABLE_1,
    papers=("minilm",),
)


# The protocol of MLKD-BERT.


def _task(rate: float, epochs: int, length: int = 128) -> Changes:
    return {"learning_rates": rate, "epochs": epochs, "batch_size": 32, "length": length}


MLKD_BERT = Protocol(
    name="mlkd_bert",
    source=(
        "MLKD-BERT, table 9 (appendix A), the columns of stage 2: epochs, batch, length and rate of every task; "
        "table 1 (F1 of MRPC and QQP, Spearman of STS-B, all tasks averaged, both MNLI sets counted) and table 2 "
        "(F1 of SQuAD)."
    ),
    silent=(
        "The fine-tuning of a student that is not distilled for the task, and of the teacher: the students of the "
        "paper are trained by stage 2 itself, whose settings are taken. The number of runs (one), warm-up, decay "
        "and stride (BERT's 0.1, 0.01 and 128). Tasks that table 9 lacks: WNLI as RTE, Chinese and cross-lingual "
        "ones as MNLI and SQuAD."
    ),
    base=_task(3e-5, 6),
    changes={
        "question_answering": {
            "learning_rates": 3e-5, "epochs": 3, "batch_size": 16, "length": 384, "stride": 128
        },
        "cola": _task(1e-5, 30, length=64),
        "mnli": _task(3e-5, 6),
        "mrpc": {**_task(2e-5, 15), "metric": "f1"},
        "sst2": _task(2e-5, 10, length=64),
        "stsb": {**_task(3e-5, 15), "metric": "spearman"},
        "qqp": {**_task(2e-5, 6), "metric": "f1"},
        "qnli": _task(2e-5, 10),
        "rte": _task(2e-5, 15),
        "wnli": _task(2e-5, 15),
    },
    average=("mnli-m", "mnli-mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte"),
    papers=("mlkd_bert",),
)  # fmt: skip


# A look, not a measurement.


QUICK = Protocol(
    name="quick",
    source="No paper: one rate and one seed on part of the rows, to see that a model learns.",
    silent="Everything.",
    base={
        "learning_rates": 5e-5,
        "epochs": 3,
        "length": 128,
        "group_by_length": True,
        "max_train_rows": 2000,
        "max_scored_rows": 1000,
    },
    changes={
        "question_answering": {"epochs": 2, "batch_size": 16, "length": 256, "stride": 64, "max_scored_rows": 200},
        "similarity": {"max_scored_rows": None},
    },
)


# Every protocol by its name.


PROTOCOLS: Registry[Protocol] = Registry("preset")
"""Name to protocol."""

for _protocol in (
    MINILMV2, MINILM, ELM, MLKD_BERT, COMPARATIVE_STUDY, COMPARATIVE_STUDY_MULTILINGUAL, QUICK
):  # fmt: skip
    PROTOCOLS.register(_protocol.name, _protocol)
