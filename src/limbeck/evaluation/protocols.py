"""The papers' grids, columns and published figures; columns are named as the papers' tables name them.

| scored splits | columns | title |
|---|---|---|
| one | `rte` | RTE |
| matched and mismatched | `mnli-m`, `mnli-mm` | MNLI-m, MNLI-mm |
| languages of one split | `xnli`, their mean, and `xnli.de` of each | XNLI, XNLI de |
| others | `name`, then `name:split` | title, then title (split) |
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from limbeck.core.registry import Registry
from limbeck.core.studies import Column, PublishedCost
from limbeck.core.yaml import Strict, mistakes_of, read_document
from limbeck.errors import RecipeError
from limbeck.evaluation.tasks import DATA, TASKS, Task

_SUFFIXES = {"matched": "m", "mismatched": "mm"}


def task_columns(task: Task) -> list[Column]:
    """Return the columns of a task, the main one first."""
    stems: dict[str, list[str]] = {}
    for split in task.scored:
        stems.setdefault(split.partition(".")[0], []).append(split)
    columns: list[Column] = []
    for index, (stem, splits) in enumerate(stems.items()):
        key, title = _name(task, stem, first=index == 0)
        found = [(key, title, splits)]
        if len(splits) > 1:
            found += [(f"{key}.{_languages(split)}", f"{title} {_languages(split)}", [split]) for split in splits]
        columns += [
            Column(key=key, title=title, task=task.name, kind=task.kind, splits=splits, detail=number > 0)
            for number, (key, title, splits) in enumerate(found)
        ]
    return columns


class Variant(NamedTuple):
    """Further scores of sentence vectors; as text it is put behind the name of a split.

    Attributes:
        width: Components that the vectors are cut to; None leaves them whole.
        asymmetric: Whether the documents are another model's.
    """

    width: int | None = None
    asymmetric: bool = False

    def __str__(self) -> str:
        """As split and column have it behind their names."""
        return f"{'' if self.width is None else f'@{self.width}'}{'@teacher' if self.asymmetric else ''}"

    def place(self) -> tuple[bool, int, bool]:
        """What variants are sorted by: whole vectors first, then the wider ones."""
        return self.width is not None, -(self.width or 0), self.asymmetric

    @property
    def title(self) -> str:
        """As tables have it behind the task."""
        width = "" if self.width is None else f", {self.width} components"
        return width + (", asymmetric" if self.asymmetric else "")


def variant_columns(columns: Sequence[Column], variants: Iterable[Variant]) -> Iterator[Column]:
    """Iterate over the columns of further scores, see `limbeck.evaluation.cell.SimilarityPoint`."""
    for variant, column in product(variants, columns):
        splits = [f"{split}{variant}" for split in column.splits]
        yield column.model_copy(
            update={"key": f"{column.key}{variant}", "title": f"{column.title}{variant.title}", "splits": splits}
        )


def _name(task: Task, stem: str, *, first: bool) -> tuple[str, str]:
    suffix = _SUFFIXES.get(stem.rpartition("_")[2])
    if suffix is not None:
        return f"{task.name}-{suffix}", f"{task.title}-{suffix}"
    return (task.name, task.title) if first else (f"{task.name}:{stem}", f"{task.title} ({stem})")


def _languages(split: str) -> str:
    """Return the languages of a split: one where context and question agree."""
    return "-".join(dict.fromkeys(split.split(".")[1:]))


Rate = Annotated[float, Field(gt=0, le=1)]
Epochs = Annotated[float, Field(gt=0, le=1000)]


class FineTuning(Strict):
    """The settings of one task; the product of rates and epochs is its grid.

    All other settings are those of `transformers.TrainingArguments`: AdamW, gradients clipped to a norm of 1, no decay
    of biases and norms.

    Attributes:
        learning_rates: Peak rates of the grid.
        epochs: Epochs of the grid.
        seeds: Runs of every grid point, with seeds 1, 2, …
        batch_size: Rows of a step.
        length: Most tokens of a row, or of a window.
        stride: Tokens of the context that neighbouring windows share.
        warmup: Share of the steps in which the rate rises.
        schedule: Course of the rate after the warm-up.
        weight_decay: Of AdamW.
        group_by_length: Make batches of rows of similar length.
        keep: Score the last weights, or those of the epoch that is best on the select split.
        pick: Choose the grid point by the mean over seeds, or the one best run of all.
        metric: Chooses and fills the tables; unset: the task's first.
        max_train_rows: Train on so many rows, drawn once for all.
        max_scored_rows: Score on so many rows of every split.
        bf16: Compute in bfloat16; unset: on a GPU that is fast in it, never on a CPU.
        pooling: Of sentence vectors; unset: as the model's folder says, else mean.
        class_weights: Weights of the classes in the loss: `balanced`, by name, or a list; see
            `limbeck.corpus.classes.balance`.
        widths: Components that sentence vectors are cut to, for further columns; unset: those that the configuration of
            a model says it was trained for (`matryoshka_dimensions`).
        predict: Of models as they are, predict unlabelled splits too, for leaderboards; a task that has no others is
            predicted in any case.
        choose_thresholds: Where a row may have several classes, choose the probability from which each is given on the
            select split, for the other splits; else 0.5.
    """

    learning_rates: tuple[Rate, ...] = Field(min_length=1)
    epochs: tuple[Epochs, ...] = Field(min_length=1)
    seeds: int = Field(default=1, ge=1, le=1000)
    batch_size: int = Field(default=32, ge=1)
    length: int = Field(default=128, ge=4)
    stride: int = Field(default=128, ge=0)
    warmup: float = Field(default=0.1, ge=0, lt=1)
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    weight_decay: float = Field(default=0.01, ge=0)
    group_by_length: bool = False
    keep: Literal["last", "best_epoch"] = "last"
    pick: Literal["mean", "best"] = "mean"
    metric: str | None = None
    max_train_rows: int | None = Field(default=None, ge=1)
    max_scored_rows: int | None = Field(default=None, ge=1)
    bf16: bool | None = None
    pooling: Literal["mean", "cls"] | None = None
    class_weights: Any = None
    predict: bool = False
    choose_thresholds: bool = False
    widths: tuple[Annotated[int, Field(ge=1)], ...] | None = None

    @field_validator("learning_rates", "epochs", "widths", mode="before")
    @classmethod
    def _one_is_a_grid(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float) else value


Changes = Mapping[str, Any]
_OF_KINDS: Mapping[str, Changes] = {"retrieval": {"length": 512}}
"""What no paper of a preset has: documents are longer than the sentences of its other tasks. A model reads no more than
its folder says."""


@dataclass(frozen=True)
class Protocol:
    """How a paper fine-tunes.

    Attributes:
        name: As it is asked for.
        source: Paper, sections and tables.
        silent: Settings that the paper leaves open, and those taken instead.
        base: Settings of all tasks.
        changes: Settings by kind of task, by group and by task; the more particular wins, in this order.
        average: The columns of the paper's average; empty: of all tasks that are fine-tuned.
        papers: Whose published rows stand beside the results; empty: all of them.
        table: The table whose average was asked for.
    """

    name: str
    source: str
    silent: str
    base: Changes
    changes: Mapping[str, Changes] = field(default_factory=dict)
    average: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    table: str | None = None

    def averaged_as(self, table: str | None) -> "Protocol":
        """Return the protocol with the average of one table of its papers, and the metrics that the table has.

        Args:
            table: Such as `"table3"`; None leaves the protocol as it is.

        Raises:
            RecipeError: for a table that prints no average over tasks.
        """
        if table is None:
            return self
        known = {
            f"table{row.table}": row.averaged
            for paper in self.papers
            for row in read_rows(paper)
            if row.average is not None and row.averaged and not any("." in column for column, _ in row.averaged)
        }
        if table not in known:
            named = f"choose one of {', '.join(known)}" if known else "leave --average out"
            raise RecipeError(f"The preset '{self.name}' has no average '{table}'; {named}.")
        changes = {name: dict(change) for name, change in self.changes.items()}
        for column, metric in known[table]:
            if column in TASKS:  # Parts of a task have one metric.
                changes.setdefault(column, {})["metric"] = metric
        return replace(self, average=tuple(column for column, _ in known[table]), changes=changes, table=table)

    def settings(self, task: Task, overrides: Sequence[tuple[str | None, Changes]] = ()) -> FineTuning:
        """Return the settings of a task.

        Args:
            task: The task.
            overrides: (task or None for all tasks, settings) each; those of one task win.

        Raises:
            RecipeError: for a setting that does not exist or cannot have its value.
        """
        values: dict[str, Any] = {**self.base, **_OF_KINDS.get(task.kind, {})}
        for key in (task.kind, task.group, task.name):
            values |= self.changes.get(key, {})
        for wanted in (None, task.name):
            for name, change in overrides:
                if name == wanted:
                    values |= change
        try:
            return FineTuning.model_validate(values)
        except ValidationError as error:
            raise RecipeError(f"--set {mistakes_of(error)[0].removeprefix('recipe: ')}") from None


def _built_in() -> Iterator[tuple[str, Protocol]]:
    """Read `data/protocols`; `like` names a protocol whose settings and averages another starts from."""
    paths = (DATA / "protocols").glob("*.yaml")
    described = {path.stem: _read(path) for path in paths}
    for name, own in sorted(described.items(), key=lambda item: item[1]["order"]):
        like = described.get(str(own.get("like")), {})
        whole = like | own | {key: like.get(key, {}) | own.get(key, {}) for key in ("base", "changes")}
        values = {field.name: whole[field.name] for field in fields(Protocol) if field.name in whole}
        yield name, TypeAdapter(Protocol).validate_python(values)


PROTOCOLS: Registry[Protocol] = Registry("preset", source=_built_in)
"""Name to protocol; `data/protocols` has a file for each."""


# Published figures. Those of a model's shape, kind of vocabulary and tasks belong beside it.


_PUBLISHED = DATA / "published"
PAPERS = ("minilm", "minilmv2", "elm", "mlkd_bert", "comparative_study")


@dataclass(frozen=True)
class PublishedRow:
    """One row of a paper's table.

    Attributes:
        paper: One of `PAPERS`.
        table: Its number there.
        model: As the paper calls it.
        teacher: The model it was distilled from; None where it was not.
        distilled: `"task"` of a student that was distilled on each task, from a teacher fine-tuned on it; None of all
            others, whether distilled on text or not at all.
        shape: Layers x hidden width, for example `"6x384"`.
        multilingual: Whether its vocabulary is.
        split: `"development"`, `"test"` (a leaderboard's, for GLUE), or `"unstated"`.
        scores: (column, metric) -> percent; a column is a task, `task-m`, `task-mm`, or `task.language`.
        average: As printed; None without one.
        averaged: The (column, metric)s that the printed average is over.
        average_without_cola: As printed; None without one.
    """

    paper: str
    table: str
    model: str
    teacher: str | None
    distilled: str | None
    shape: str
    multilingual: bool
    split: str
    scores: Mapping[tuple[str, str], float]
    average: float | None
    averaged: tuple[tuple[str, str], ...]
    average_without_cola: float | None


@cache
def read_rows(paper: str) -> tuple[PublishedRow, ...]:
    """Read all rows of a paper's score tables, in the order of the paper.

    Args:
        paper: One of `PAPERS`.
    """
    return tuple(row for table in _read(_PUBLISHED / f"{paper}.yaml")["tables"] for row in _table_rows(paper, table))


@cache
def read_costs(paper: str) -> tuple[PublishedCost, ...]:
    """Read all rows of a paper's cost tables, in the order of the paper; empty where it has none.

    Args:
        paper: One of `PAPERS`.
    """
    return tuple(
        PublishedCost(
            paper=paper,
            table=table["table"],
            shape=row["shape"],
            multilingual=table.get("multilingual", False),
            device=table["device"],
            task=table.get("task"),
            values=dict(zip(table["columns"], map(float, row["values"]), strict=True)),
        )
        for table in _read(_PUBLISHED / f"{paper}.yaml").get("costs", ())
        for row in table["rows"]
    )


def _table_rows(paper: str, table: Mapping[str, Any]) -> Iterator[PublishedRow]:
    columns = [_column(text) for text in table["columns"]]
    averaged = tuple(_column(text) for text in table.get("averaged", table["columns"]))
    for row in table["rows"]:
        pairs = zip(columns, row["scores"], strict=True)
        scores = {column: float(value) for column, value in pairs if value is not None}
        average = row.get("average")
        if "average_of" in table and average is not None:
            scores[_column(table["average_of"])] = average
        found = {field.name: row.get(field.name, table.get(field.name)) for field in fields(PublishedRow)}
        found |= {"paper": paper, "multilingual": table.get("multilingual", False)}
        yield PublishedRow(**(found | {"scores": scores, "averaged": averaged}))


def _column(text: str) -> tuple[str, str]:
    column, metric = text.split()
    return column, metric


@cache
def _read(path: Path) -> dict[str, Any]:
    return cast(dict[str, Any], read_document(path, f"'{path}'", "install limbeck again."))


MULTILINGUAL_FROM = 100_000
"""Tokens from which a vocabulary is taken for a multilingual one: mBERT's is 119,547, XLM-R's 250,002."""


def matching_rows(
    shapes: Iterable[tuple[str, int]],
    columns: Collection[tuple[str, str]],
    papers: Iterable[str] = PAPERS,
    *,
    on_task: Iterable[tuple[str, int]] = (),
) -> list[PublishedRow]:
    """Find the published rows that can be read beside models.

    Args:
        shapes: Of every model, (layers x hidden width such as `"6x384"`, tokens in its vocabulary).
        columns: The (column, metric)s that were measured; a row with none of them, printed under the same metric, is
            left out.
        papers: Whose rows; in this order.
        on_task: Of the models that were distilled on a task, likewise; rows of task-distilled students stand beside
            these alone.
    """
    wanted, also = ({(shape, vocabulary >= MULTILINGUAL_FROM) for shape, vocabulary in of} for of in (shapes, on_task))
    return [
        row
        for paper in papers
        for row in read_rows(paper)
        if (row.shape, row.multilingual) in (also if row.distilled else wanted)
        and any(column in row.scores for column in columns)
    ]


def matching_costs(shapes: Iterable[tuple[str, int]]) -> list[PublishedCost]:
    """Find the published costs of models of the same shapes; see `matching_rows`."""
    wanted = {(shape, vocabulary >= MULTILINGUAL_FROM) for shape, vocabulary in shapes}
    return [cost for paper in PAPERS for cost in read_costs(paper) if (cost.shape, cost.multilingual) in wanted]
