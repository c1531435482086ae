"""`Protocol`, how a paper fine-tunes on tasks: its settings, its average, and the papers beside which results stand.

Columns are named as the papers' tables name them:

| scored splits | columns | title |
|---|---|---|
| one | `rte` | RTE |
| matched and mismatched | `mnli-m`, `mnli-mm` | MNLI-m, MNLI-mm |
| languages of one split | `xnli`, their mean, and `xnli.de` of each | XNLI, XNLI de |
| others | `name`, then `name:split` | title, then title (split) |
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from limbeck.core.kinds import KindFacts, kind_of
from limbeck.core.mistakes import mistakes_of
from limbeck.core.registry import Registry
from limbeck.errors import RecipeError, suggestion
from limbeck.evaluation.protocols.overrides import Override
from limbeck.evaluation.protocols.published import ColumnMetric, read_rows
from limbeck.evaluation.protocols.settings import FineTuning
from limbeck.evaluation.shipped_data import DATA, read_data_file
from limbeck.evaluation.tasks.registry import TASKS
from limbeck.kinds.task import Task

Changes = Mapping[str, Any]
"""Setting to value, in place of another value."""
_NO_LIMIT = 1_000_000
_CHANGES_OF_KINDS: Mapping[str, Changes] = {
    "retrieval": {"length": 512},
    "similarity": {"length": _NO_LIMIT},
    "mteb": {"length": _NO_LIMIT},
}
"""Settings by kind of task, of all protocols. Their papers have none of these kinds, and a model reads no more tokens
than its folder says. Texts of `similarity` and of mteb's tasks have no other limit, so that scores are those of
sentence-transformers and mteb; documents of a retrieval may be whole books, of which a model without a limit would read
everything."""
_KEYS_OF_FILES = frozenset({"order", "like"})
"""Keys of a protocol's file beside the fields of `Protocol`: its place, and the protocol that it starts from."""


@dataclass(frozen=True)
class Protocol:
    """How a paper fine-tunes.

    Attributes:
        name: Name by which users ask for it, as `--preset`.
        source: Paper, sections and tables.
        silent: Text on the settings that the paper leaves open, and the values taken for them.
        base: Settings of all tasks.
        changes: Settings by the name of a kind of task, of a group or of a task. Those of a task take precedence over
            those of its group, and these over those of its kind.
        average: The columns of the paper's average; where it is empty, all tasks that are fine-tuned.
        papers: Papers whose rows stand beside the results; where it is empty, all papers.
        table: The table whose average the user asked for.
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
        averages = self._averages()
        if table not in averages:
            way_out = "leave --average out"
            if averages:
                way_out = f"choose one of {', '.join(averages)}"
            raise RecipeError(f"The preset '{self.name}' has no table '{table}' with an average; {way_out}.")

        averaged = averages[table]
        changes = {name: dict(change) for name, change in self.changes.items()}
        for column, metric in averaged:
            # Parts of a task, such as `mnli-m`, have one metric.
            if column in TASKS:
                changes.setdefault(column, {})["metric"] = metric
        columns = tuple(column for column, _ in averaged)
        return replace(self, average=columns, changes=changes, table=table)

    def _averages(self) -> dict[str, tuple[ColumnMetric, ...]]:
        """Return the columns that each table's average is over, by the table's name, such as `table3`.

        Tables without an average over tasks are left out.
        """
        averages = {}
        for paper in self.papers:
            for row in read_rows(paper):
                if row.average is None or not row.averaged:
                    continue
                # Columns such as `xnli.de` are the languages of one task.
                is_over_languages = any("." in column for column, _ in row.averaged)
                if not is_over_languages:
                    averages[f"table{row.table}"] = row.averaged
        return averages

    def settings(self, task: Task, overrides: Sequence[Override] = ()) -> FineTuning:
        """Return the settings of a task.

        Args:
            task: The task.
            overrides: The user's settings; those for one task take precedence over those for all, in any order.

        Raises:
            RecipeError: for a setting that does not exist or cannot have its value.
        """
        values: dict[str, Any] = dict(self.base)
        length = self.length_of_kind(task, overrides)
        if length is not None:
            values["length"] = length
        for changes in self._changes_of(task, overrides):
            values.update(changes)
        try:
            return FineTuning.model_validate(values)
        except ValidationError as error:
            raise RecipeError(f"--set {mistakes_of(error)[0].removeprefix('recipe: ')}") from None

    def length_of_kind(self, task: Task, overrides: Sequence[Override] = ()) -> int | None:
        """Return the length of a task's kind, where rows are read up to it; None where another length is named.

        The base of a protocol has the length of short texts. A kind whose rows are longer, such as a ranking, is read
        as in a distillation, unless the protocol or the user names a length for it.

        Args:
            task: The task.
            overrides: The user's settings.
        """
        length = kind_of(task.kind).length
        if length == KindFacts.length:
            return None
        names_another = any("length" in changes for changes in self._changes_of(task, overrides))
        return None if names_another else length

    def _changes_of(self, task: Task, overrides: Sequence[Override]) -> Iterator[Changes]:
        """Yield the settings that replace those of the base; each takes precedence over those before it."""
        yield _CHANGES_OF_KINDS.get(task.kind, {})
        # The keys of `changes` are names of kinds, groups and tasks.
        for key in (task.kind, task.group, task.name):
            yield self.changes.get(key, {})
        # First the user's settings of all tasks, then those of this task.
        for name_of_task in (None, task.name):
            for overridden_task, settings in overrides:
                if overridden_task == name_of_task:
                    yield settings


def _built_in() -> Iterator[tuple[str, Protocol]]:
    """Yield the name and the protocol of each file in `data/protocols`, in their order."""
    paths = (DATA / "protocols").glob("*.yaml")
    descriptions = {path.stem: read_data_file(path) for path in paths}
    known_keys = {field.name for field in fields(Protocol)} | _KEYS_OF_FILES
    for name in sorted(descriptions, key=lambda name: descriptions[name]["order"]):
        description = descriptions[name]
        if "like" in description:
            description = _merged(descriptions[description["like"]], description)
        for key in description:
            if key not in known_keys:
                raise RecipeError(f"The preset '{name}' has the unknown key '{key}'.{suggestion(key, known_keys)}")
        values = {key: value for key, value in description.items() if key not in _KEYS_OF_FILES}
        yield name, TypeAdapter(Protocol).validate_python(values)


def _merged(original: Mapping[str, Any], description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a protocol that starts from another one, the original.

    Each key of the description replaces that of the original. Of `base` and `changes`, which are mappings, only the
    settings that the description names are replaced.
    """
    merged = {**original, **description}
    for key in ("base", "changes"):
        merged[key] = {**original.get(key, {}), **description.get(key, {})}
    return merged


PROTOCOLS: Registry[Protocol] = Registry("preset", source=_built_in)
"""Name to protocol; `data/protocols` has a file for each."""
