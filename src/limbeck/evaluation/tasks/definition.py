"""The description of a task in YAML: its classes, metrics and splits, and the sources of its rows."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from limbeck.core.kinds import KINDS, KindFacts
from limbeck.core.strict import Strict
from limbeck.corpus.rows.tags import check_tags, marks_entities
from limbeck.errors import CorpusError, suggestion
from limbeck.evaluation.tasks.sources import Files, FileSource, HubSource, HubSplit, TextFile, Texts
from limbeck.kinds.columns import Columns, Names
from limbeck.kinds.task import AnswerRules, SplitFacts, Submission, Task

_PAIR = "pair"
"""A type beside those of kinds: the classification of two texts."""
_TEST = "test"
"""Beginning of the names of splits that are there to be scored, not to choose by."""
_LONGEST_TITLE = 200
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MOST_WRITTEN_OUT = 5_000_000
"""Characters of a description once the keys that stand for several splits are written out."""


def _known_type(name: str) -> str:
    if name != _PAIR and name not in KINDS:
        raise ValueError(f"'{name}' is not a type of task.{suggestion(name, [*KINDS, _PAIR])}")
    return name


class TaskDefinition(Strict):
    """A task and the sources of its rows, as its YAML describes them."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)
    """Letters, digits, `_`, `-` and `.`."""
    type: Annotated[str, AfterValidator(_known_type)]
    """A type of the table of metrics, or `pair`, a classification of two texts. Rows of `multi_label` have any number
    of classes; `similarity` and `retrieval` compare sentence vectors."""
    title: str | None = None
    """The task's name in tables; by default `name`."""
    group: str = Field(default="own", pattern=r"^\w{1,100}$")
    """Whose settings of a preset it takes, such as `chinese`."""
    columns: Columns = Columns()
    """`text` (needed by tasks of one or two texts), `pair` (the second text), `label` or `label_columns` (a column of
    0 and 1 for each class), `id`; of questions `context`, `question` and `answers`, as SQuAD has them; of tagged words
    `tokens` and `tags`, or numbers of fields; of rankings and retrieval `query` and `documents`, one column or
    several. Those left out, except `text`, `pair` and `id`, are looked for by these names."""
    labels: tuple[str, ...] = ()
    """Class names in the order of their numbers; rows may hold either. Needed wherever there are classes, unless
    `label_columns` names them."""
    metric: Names = ()
    """One or several, the main one first; by default all of the type."""
    each: dict[str, tuple[str, ...]] = Field({})
    """Names to their values: a split `test.{language}` stands for one split for each value of `language`, and
    `{language}` in its files and settings for the value."""
    folders: tuple[str, ...] = ("",)
    """Folders that the files may lie in."""
    files: Files = Field({})
    """Split to file: `.json`, `.jsonl`, `.csv`, `.tsv`, `.txt` (tabs) or `.parquet`, each also `.gz`, `.xz` or `.zst`;
    or to a list of names, of which the first that exists is read (`*.json`: the only such file of the folder); or to
    `path` with its own `columns`, `queries` and `documents`, `header` (field names of a tab-separated table without
    them) or `only` (fields and the values that a row must have). Needed without `hub`."""
    hub: HubSource | None = None
    """A data set: `name`, `config`, `revision`; `splits`, the task's to the data set's or to its `split` and `config`;
    `columns` and `rows` where they differ from those of the files."""
    queries: Texts = None
    """Of a retrieval, the file of the queries that rows name by their ids; or its `path`, `id` and `text` (one column
    or several), by default `_id` and `text`. Without it rows hold the queries."""
    documents: Texts = None
    """The same for documents."""
    parts: dict[str, tuple[str, ...]] = Field({})
    """A split to the splits that are joined, in order, to make it."""
    rows: dict[str, int] = Field({})
    """Split to its published number of rows; a difference is noted."""
    language: str | dict[str, str] = "en"
    """ISO 639-1, or split to language."""
    train: str = "train"
    """The split to train on; `mnli:train` is another task's."""
    select: str = "validation"
    """The split to choose settings on, also another task's. Where it does not exist: the first that is scored, or, if
    that is a test split and something is chosen, rows of `train` (500 or a tenth, in whole groups of near
    duplicates)."""
    scored: tuple[str, ...] | None = None
    """The splits to score; by default all that have labels and are not trained on."""
    second_choice: tuple[str, ...] = ()
    """The splits to score where none of `scored` exists."""
    unlabelled: tuple[str, ...] = ()
    """Splits without labels: predicted, not scored."""
    no_answers: bool = False
    """Whether questions may have no answer."""
    answer_rules: AnswerRules | None = None
    """Whose script compares answers; by default MLQA's for its languages other than English, else SQuAD's."""
    submissions: dict[str, Submission] = Field({})
    """Split to the leaderboard's `file`, `.tsv` or `.json`, by default `{task}-{split}.tsv`; `classes: numbers` in
    place of names, `range` for bounds of values."""

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, data: Any) -> Any:
        each = data.get("each") if isinstance(data, dict) else None
        if not isinstance(each, dict) or not all(isinstance(values, list) for values in each.values()):
            return data
        if len(repr(data)) * math.prod(map(len, each.values())) > _MOST_WRITTEN_OUT:
            raise ValueError("each stands for too many splits: give fewer values")
        written = {}
        for key, value in data.items():
            written[key] = value if key == "each" else _write_out(value, each, {})
        return written

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_text(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        for label in value:
            # YAML reads 0 and no as a number and a truth value.
            if not isinstance(label, str | int) or isinstance(label, bool):
                raise ValueError(f"the label {label!r} is not text: put it in quotation marks")
        return tuple(map(str, value))

    @field_validator("title", "language")
    @classmethod
    def _is_one_line(cls, value: Any) -> Any:
        by_split = value if isinstance(value, dict) else {"": value}
        for text in by_split.values():
            if text is None:
                continue
            if not text.isprintable() or not 0 < len(text.strip()) <= _LONGEST_TITLE:
                raise ValueError(f"{text[:40]!r} is not a line of 1 to {_LONGEST_TITLE} printable characters")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> TaskDefinition:
        problems = itertools.chain(
            self._problems_of_names(),
            self._problems_of_columns(),
            self._problems_of_classes(),
            self._problems_of_splits(),
        )
        problem = next(problems, None)
        if problem is not None:
            raise ValueError(problem)
        return self

    def _problems_of_names(self) -> Iterator[str]:
        """Yield splits without a source, and files that are not near: a description may come from anywhere."""
        if not self.files and self.hub is None:
            yield "give files, hub or both"
        if not self.split_names:
            yield "hub names no split: give at least one, such as validation"
        for split in self.split_names:  # Files of predictions are named after them.
            if not _SPLIT.fullmatch(split):
                yield f"the name of the split {split[:40]!r} must consist of letters, digits, '.', '-' and '_'"

        files = [(split, name) for split in self.split_names for name, _ in self.paths(split)]
        for key, text_file in self._text_files():
            files += [(key, name) for name, _ in self.paths_of_texts(text_file)]
        for owner, name in files:
            path = Path(name)
            is_near = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
            if not is_near or not name.isprintable():
                yield f"the file '{name[:80]}' of {owner} must lie beside the description or in --data"

    def _problems_of_columns(self) -> Iterator[str]:
        """Yield what is wrong with the columns of rows, and with the files of their texts."""
        facts = self.facts
        if "text" in facts.columns and not self.columns.text:
            yield "columns.text is missing: name the column of the text"
        for key, _ in self._text_files():
            if not facts.has_text_files:
                yield f"{key} is a file of a retrieval task, not of {self.type}: leave it out"
            if self.hub is not None:
                yield f"{key} is a file, but hub is not: give the splits as files"
        if facts.has_text_files and self.unlabelled:
            yield "unlabelled is for splits that are only predicted, but a retrieval task has none: leave it out"
        if self.type in (_PAIR, "similarity") and self.columns.pair is None:
            yield f"columns.pair is missing: the type {self.type} needs two texts"
        if self.columns.label_columns and "label_columns" not in facts.columns:
            yield f"columns.label_columns are for multi_label, not for {self.type}: name one column as label"
        has_header = any(file.header for files in self.files.values() for file in files)
        if "tokens" in facts.columns and has_header:
            yield "header is for tables with a row per line: the fields of a word are numbered from 1"

    def _problems_of_classes(self) -> Iterator[str]:
        """Yield what is wrong with the classes and the metrics."""
        facts = self.facts
        if facts.has_classes and len(set(self.classes)) < 2:
            yield "labels is missing: name two classes or more, in the order of their numbers"
        if len(set(self.labels)) < len(self.labels) or not all(label.strip() for label in self.labels):
            yield "labels must differ, and none may be empty"
        if not facts.has_classes and self.labels:
            yield f"labels are for classification and pair, not for {self.type}"
        if "tags" in facts.columns:
            try:
                check_tags(self.labels)
            except CorpusError as error:
                yield f"labels: {error}"
        metrics = self._metrics
        for name in self.metric:
            if name not in metrics:
                yield f"{self.type} has no metric '{name}'.{suggestion(name, metrics)}"

    def _problems_of_splits(self) -> Iterator[str]:
        """Yield names of splits that are not there."""
        known = self.split_names
        for split in self.unlabelled:
            if split not in known or split in (self.train, self.select):
                yield f"unlabelled names '{split}', which is not a split that is only predicted"
        splits_of_key: dict[str, Sequence[str]] = {
            "parts": [part for parts in self.parts.values() for part in parts],
            "rows": [*self.rows, *(self.hub.rows if self.hub is not None else ())],
            "language": list(self.language) if isinstance(self.language, dict) else [],
            "scored": self.scored or (),
            "second_choice": self.second_choice,
            "submissions": list(self.submissions),
        }
        for key, splits in splits_of_key.items():
            needs_labels = key in ("scored", "second_choice")
            for split in splits:
                if split not in known or (needs_labels and split in self.unlabelled):
                    yield f"{key} names '{split}'.{suggestion(split, known)}"
        if ":" not in self.train and self.is_trained and self.train not in known:
            yield f"there is no split '{self.train}' to train on.{suggestion(self.train, known)}"

    @property
    def kind(self) -> str:
        """Name of the kind of task: a pair is a classification of two texts."""
        return "classification" if self.type == _PAIR else self.type

    @property
    def facts(self) -> KindFacts:
        """The facts of its kind."""
        return KINDS[self.kind]

    @property
    def is_trained(self) -> bool:
        """Whether models are fine-tuned on it; else their sentence vectors are compared."""
        return self.facts.head is not None

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their numbers: `labels`, else the columns of 0 and 1."""
        return self.labels or self.columns.label_columns

    @cached_property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits, in the order of the description."""
        on_hub = () if self.hub is None else self.hub.splits
        return tuple(dict.fromkeys((*self.parts, *self.files, *on_hub)))

    def paths(self, split: str) -> list[tuple[str, FileSource]]:
        """Return every name that the file of a split may have, in the order of preference."""
        named = []
        for file in self.files.get(split, ()):
            named += [(path, file) for path in self._in_folders(file.path)]
        return named

    def paths_of_texts(self, file: TextFile) -> list[tuple[str, FileSource]]:
        """Return every name that a file of `texts` may have, in the order of preference."""
        source = FileSource(path=file.path)
        return [(path, source) for path in self._in_folders(file.path)]

    def texts(self, rows: FileSource | None = None) -> dict[str, TextFile]:
        """Return the files of the texts that the rows of a file name by their ids: `queries`, `documents`.

        Args:
            rows: The file of the rows; None for the task's own.
        """
        files = {}
        for key in ("queries", "documents"):
            file = getattr(rows, key, None) or getattr(self, key)
            if file is not None:
                files[key] = file
        return files

    def on_hub(self, split: str) -> tuple[HubSource, HubSplit] | None:
        """Return the data set and its split that a split is read from; None where there is none."""
        hub = self.hub
        if hub is None or split in self.parts or (hub.splits and split not in hub.splits):
            return None
        place = hub.splits.get(split) or HubSplit(split=split)
        return hub, HubSplit(split=place.split, config=place.config or hub.config)

    @property
    def development(self) -> str | None:
        """The split that is there to choose by; None where a test split alone is held out, and stands in for it."""
        select = self.task.select
        if "select" in self.model_fields_set or select is None or not select.startswith(_TEST):
            return select
        return next((name for name in self._held_out if not name.startswith(_TEST)), None)

    @cached_property
    def task(self) -> Task:
        """The task."""
        labelled = [name for name in self.split_names if name not in self.unlabelled]
        select: str | None = self.select
        if ":" not in self.select and self.select not in labelled:
            select = next(iter(self._held_out), None)
        scored = self.scored
        if scored is None:
            scored = tuple(self._held_out if self.is_trained else labelled)
        splits = {}
        for name in self.split_names:
            language = self.language.get(name, "en") if isinstance(self.language, dict) else self.language
            splits[name] = SplitFacts(self.rows.get(name), name in labelled, language)
        return Task(
            name=self.name,
            title=self.title or self.name,
            group=self.group,
            kind=self.kind,
            labels=self.classes,
            metrics=self.metric or self._metrics,
            train=self.train if self.is_trained else None,
            select=select if self.is_trained else None,
            scored=scored,
            predicted=self.unlabelled,
            splits=splits,
            answerable_only=not self.no_answers,
            answer_rules=self.answer_rules,
            submissions=self.submissions,
        )

    @property
    def _metrics(self) -> tuple[str, ...]:
        """Names of the metrics that can score it: parts of speech have no entities."""
        metrics = self.facts.metrics
        if "tags" in self.facts.columns and not marks_entities(self.labels):
            return tuple(name for name in metrics if not name.endswith("_entity"))
        return metrics

    @property
    def _held_out(self) -> list[str]:
        """Names of the labelled splits that nothing is trained on."""
        others = (self.train, *self.unlabelled, *self.parts)
        return [name for name in self.split_names if name not in others]

    def _text_files(self) -> list[tuple[str, TextFile]]:
        """Return the files of texts of all splits, each with its key."""
        files = list(self.texts().items())
        for sources in self.files.values():
            for source in sources:
                files += self.texts(source).items()
        return files

    def _in_folders(self, names: Sequence[str]) -> list[str]:
        return [_join(folder, name) for folder in self.folders for name in names]


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _write_out(value: Any, each: Mapping[str, Sequence[str]], chosen: Mapping[str, str]) -> Any:
    """Write a value out for every value of the names that it has in braces.

    Args:
        value: Plain values; keys and listed texts with `{name}` come once for each value of the name.
        each: Names to their values.
        chosen: Names whose value is fixed already, by a key above.
    """
    if isinstance(value, dict):
        written = {}
        for key, item in value.items():
            for text, fixed in _choices(key, each, chosen):
                written[text] = _write_out(item, each, fixed)
        return written
    if isinstance(value, list):
        items = []
        for part in value:
            for item, fixed in _choices(part, each, chosen):
                items.append(_write_out(item, each, fixed))
        return items
    return _put_in(value, chosen)


def _choices(text: Any, each: Mapping[str, Any], chosen: Mapping[str, str]) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield a text for every choice of values for its free names, with all names that are fixed then."""
    free = []
    if isinstance(text, str):
        free = [name for name in each if name not in chosen and f"{{{name}}}" in text]
    for values in itertools.product(*(map(str, each[name]) for name in free)):
        fixed = {**chosen, **dict(zip(free, values, strict=True))}
        yield _put_in(text, fixed), fixed


def _put_in(text: Any, chosen: Mapping[str, str]) -> Any:
    """Replace names in braces by their values; what is no text stays."""
    if not isinstance(text, str):
        return text
    for name, value in chosen.items():
        text = text.replace(f"{{{name}}}", value)
    return text
