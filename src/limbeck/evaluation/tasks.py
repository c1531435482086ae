"""Tasks: their rows and splits, their description in YAML, and the built-in ones in `data/tasks`.

A built-in task is one more file of the dialect in which users describe their tasks (docs/evaluation_tasks.md).
The files are read when a task is first asked for.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from limbeck.core.beside import tried_beside
from limbeck.core.kinds import KINDS, KindName
from limbeck.core.mistakes import mistakes_of
from limbeck.core.registry import Registry
from limbeck.core.strict import Strict
from limbeck.core.yaml import read_document
from limbeck.corpus.tags import check_tags, marks_entities
from limbeck.errors import CorpusError, RecipeError, suggestion
from limbeck.evaluation.data_files import DATA

TaskKind: TypeAlias = Literal[KindName, "similarity", "retrieval"]
"""`similarity` and `retrieval` are scored by cosines of sentence vectors, without fine-tuning."""

PUBLISHED = "the published set has"
"""In a note on a split of which other rows are there than were published, before how many."""

AnswerRules = Literal["squad", "mlqa", "cmrc2018"]

METRIC_NAMES: Mapping[TaskKind, tuple[str, ...]] = {
    "classification": ("accuracy", "f1", "matthews"),
    "multi_label": ("micro_f1", "macro_f1", "accuracy", "mean_average_precision"),
    "regression": ("pearson", "spearman"),
    "question_answering": ("exact_match", "f1_answer"),
    "ranking": ("ndcg_at_10", "mrr_at_10"),
    "token_classification": ("f1_entity", "precision_entity", "recall_entity", "accuracy"),
    "similarity": ("spearman", "pearson"),
    "retrieval": ("ndcg_at_10", "mrr_at_10", "recall_at_10", "recall_at_100"),
}
"""Kind of task to the metrics that can score it, its default first. Those of entities are for tags that mark some."""


@dataclass(frozen=True)
class TaskRow:
    """One row of a split; of a ranking one for each document of a query, in consecutive rows.

    Of a retrieval it is one for each document whose relevance to a query is known; all documents of its rows are
    searched for every query, and a document that no query names has an empty `text`.

    Attributes:
        id: As the source has it, else the row number from 0.
        text: The first text, the context of a question, the query, or tagged words with `WORD_GAP` between them.
        pair: The second text, the question, or the document.
        label: Number of the class (of each word's), the value, or the document's relevance; of several classes, 1 or 0
            for each; None where unlabelled, and for question answering.
        answers: Every gold answer; empty where there is none.
        answer_starts: Where in `text` each answer begins, in characters.
        language: Of the text, as an ISO 639-1 code.
        ids: Of a retrieval those of the query and of the document, each empty where there is none; None where the rows
            hold texts alone.
    """

    id: str
    text: str
    pair: str | None = None
    label: int | float | tuple[int, ...] | None = None
    answers: tuple[str, ...] = ()
    answer_starts: tuple[int, ...] = ()
    language: str = "en"
    ids: tuple[str, str] | None = None

    @property
    def keys(self) -> tuple[str, str]:
        """What tells the queries and the documents of a retrieval apart: their ids, else their texts."""
        query, document = self.ids or ("", "")
        return query or self.text, document or self.pair or ""


def queries_of(rows: Sequence[TaskRow]) -> list[slice]:
    """Return where each query's documents stand: consecutive rows of the same query."""
    starts = [number for number, row in enumerate(rows) if number == 0 or row.text != rows[number - 1].text]
    return [slice(*bounds) for bounds in pairwise([*starts, len(rows)])]


@dataclass(frozen=True)
class SplitFacts:
    """Facts of a split before it is read.

    Attributes:
        published_rows: Rows that the source publishes; a mismatch is reported, never hidden.
        labelled: Whether its labels or answers are public.
        language: Of its texts, or of the context of its questions.
    """

    published_rows: int | None = None
    labelled: bool = True
    language: str = "en"


class Submission(Strict):
    """The file of predictions that a leaderboard takes for a split.

    Attributes:
        file: Its name; `.tsv` is a table, `.json` one object of answers, or an object a line of classes.
        classes: Whether a class is written by its name or by its number.
        range: Least and greatest value that the leaderboard takes; None for no bounds.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.(tsv|json)$")
    classes: Literal["names", "numbers"] = "names"
    range: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task: its kind, the roles of its splits, its metrics.

    Attributes:
        name: As it is asked for, for example `sst2`.
        title: As tables print it, for example `SST-2`.
        group: `glue`, `qa`, `cross_lingual`, `chinese`, `similarity` or `own`.
        kind: Decides head, loss and decoding.
        labels: Class names in the order of their numbers; empty where there are no classes.
        metrics: Names in `METRICS`, the main one first.
        train: The split to train on; `"mnli:train"` where it is another task's; None where nothing is trained.
        select: The split on which the best grid point is chosen.
        scored: The labelled splits that are scored.
        predicted: The unlabelled splits, for submission files only.
        splits: Facts of every split.
        answerable_only: False where a question may have no answer, so that a threshold decides.
        answer_rules: Whose rules compare answers: `squad`, `mlqa` or `cmrc2018`; None decides by the language.
        submissions: The leaderboard's file per split; a split without one has the file `{task}-{split}`.
        thresholds: Of several classes a row, the probability from which each is given; empty: 0.5 for all.
    """

    name: str
    title: str
    group: str
    kind: TaskKind
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...]
    train: str | None
    select: str | None
    scored: tuple[str, ...]
    predicted: tuple[str, ...] = ()
    splits: Mapping[str, SplitFacts]
    answerable_only: bool = True
    answer_rules: AnswerRules | None = None
    submissions: Mapping[str, Submission] = field(default_factory=dict)
    thresholds: tuple[float, ...] = ()


@dataclass(frozen=True)
class TaskData:
    """The rows of a task.

    Attributes:
        task: Whose rows they are.
        splits: Rows per split; the train split is under `"train"` even where it is another task's.
        notes: Row counts beside the published ones, dropped rows and the like, for the user to read.
    """

    task: Task
    splits: Mapping[str, Sequence[TaskRow]]
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class AnswerPrediction:
    """The answer to one question.

    Attributes:
        text: The best answer that is not empty.
        null_odds: Score of no answer less the score of `text`; where it is above a threshold the answer is empty.
    """

    text: str
    null_odds: float = 0.0


Predictions: TypeAlias = (
    Sequence[int]
    | Sequence[float]
    | Sequence[tuple[float, ...]]
    | Sequence[Sequence[int]]
    | Mapping[str, AnswerPrediction]
)
"""A class number or a value per row, in their order; of several classes a row, a probability for each; of words, a
class number for each; or, of questions, an answer per row id."""


_TEST = "test"
_LONGEST_TITLE = 200
_SPLIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MOST_WRITTEN_OUT = 5_000_000
"""Characters of a description once the keys that stand for several splits are written out."""

Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
"""Several names, or one alone."""


class Columns(Strict):
    """The columns that a row is made of; those of question answering are SQuAD's by default.

    Attributes:
        text: The text; of a list of texts the parts are joined by spaces.
        pair: The second text.
        label: The class or the value; of several classes, a list of them, or text that has them between `|`, `;`
            or `,`.
        label_columns: In place of `label`, a column of 0 and 1 for each class.
        id: Of the row; where a table has no such column, rows are numbered from 0.
        context: The text that a question is asked of.
        question: The question.
        answers: Texts and starts of its answers.
        query: Of a ranking or a retrieval.
        documents: Columns of its documents, each a text or a list of texts; of several the first holds the relevant
            ones.
        tokens: The words of a sentence; of a table of a word a line the first field.
        tags: Their classes; of such a table the last field.
    """

    text: str = ""
    pair: str | None = None
    label: str = "label"
    label_columns: tuple[str, ...] = ()
    id: str | None = None
    context: str = "context"
    question: str = "question"
    answers: str = "answers"
    query: str = "query"
    documents: Names = Field(("documents",), min_length=1)
    tokens: str = "tokens"
    tags: str = "tags"


class TextFile(Strict):
    """A file of queries or documents by their ids, as BEIR has them by default.

    Attributes:
        path: Names that it may have, below the data folder or one of its subfolders.
        id: The column that the rows of a split name.
        text: Columns of the text; those of several that are not empty are joined by a space.
    """

    path: Names = Field(min_length=1)
    id: str = "_id"
    text: Names = Field(("text",), min_length=1)


def _file_of_a_name(value: Any) -> Any:
    return {"path": value} if isinstance(value, str | list) else value


Texts = Annotated[TextFile | None, BeforeValidator(_file_of_a_name)]


class FileSource(Strict):
    """A file of a split, and its layout.

    Attributes:
        path: Names that it may have, below the data folder or one of its subfolders; a name with `*` is the one file of
            the data folder itself that it matches.
        columns: Those that a row is made of, where they are not the task's.
        header: Names of the fields of a table without a header; further fields are skipped.
        only: Fields and the values that a row must have in them to belong to the split.
        queries: File of the queries that its rows name by their ids, where it is not the task's.
        documents: The same of documents.
    """

    path: Names = Field(min_length=1)
    columns: Columns | None = None
    header: tuple[str, ...] = ()
    only: dict[str, str] = Field({})
    queries: Texts = None
    documents: Texts = None


class HubSplit(Strict):
    """A split of a Hub data set."""

    split: str
    config: str | None = None


def _split_of_a_name(value: Any) -> Any:
    return {"split": value} if isinstance(value, str) else value


class HubSource(Strict):
    """A Hub data set, and which of its splits are which of the task's; by default those of the same names.

    Attributes:
        name: `owner/name`.
        config: Of the data set.
        revision: Of the data set; None is the newest.
        columns: Those that a row is made of, where they are not the task's.
        splits: The data set's splits, by the task's.
        rows: Numbers of rows of this copy, where they are not the published ones.
    """

    name: str = Field(pattern=r"^\w[\w.-]*(/\w[\w.-]*)?$")
    config: str | None = None
    revision: str | None = None
    columns: Columns | None = None
    splits: dict[str, Annotated[HubSplit, BeforeValidator(_split_of_a_name)]] = Field({})
    rows: dict[str, int] = Field({})


def _files_of_names(value: Any) -> Any:
    """Return the descriptions of a split's files: one, several, or the names alone."""
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        return [{"path": value}]
    return [value] if isinstance(value, dict) else value


Files = Annotated[
    dict[str, Annotated[tuple[FileSource, ...], BeforeValidator(_files_of_names)]],
    BeforeValidator(lambda value: {} if value is None else value),
]


class TaskDefinition(Strict):
    """A task and the sources of its rows, as its YAML describes them."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)
    """Letters, digits, `_`, `-` and `.`."""
    type: Literal[TaskKind, "pair"]
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
        return {key: value if key == "each" else _written_out(value, each, {}) for key, value in data.items()}

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_text(cls, value: Any) -> Any:
        # YAML reads 0 and no as a number and a truth value.
        if isinstance(value, list):
            if wrong := [label for label in value if not isinstance(label, str | int) or isinstance(label, bool)]:
                raise ValueError(f"the label {wrong[0]!r} is not text: put it in quotation marks")
            return tuple(map(str, value))
        return value

    @field_validator("title", "language")
    @classmethod
    def _is_one_line(cls, value: Any) -> Any:
        texts = value.values() if isinstance(value, dict) else () if value is None else (value,)
        for text in texts:
            if not (text.isprintable() and 0 < len(text.strip()) <= _LONGEST_TITLE):
                raise ValueError(f"{text[:40]!r} is not a line of 1 to {_LONGEST_TITLE} printable characters")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> TaskDefinition:
        problems = itertools.chain(self._problems_of_names(), self._problems_of_rows(), self._problems_of_splits())
        if problem := next(problems, None):
            raise ValueError(problem)
        return self

    def _problems_of_names(self) -> Iterator[str]:
        """Find splits without a place; a description may come from anywhere, and reads nothing but what lies near."""
        if not self.files and self.hub is None:
            yield "give files, hub or both"
        if not self.split_names:
            yield "hub names no split: give at least one, such as validation"
        for split in self.split_names:  # Files of predictions are named after them.
            if not _SPLIT.fullmatch(split):
                yield f"the name of the split {split[:40]!r} must consist of letters, digits, '.', '-' and '_'"
        places = [(split, name) for split in self.split_names for name, _ in self.paths(split)]
        places += [(key, name) for key, file in self._all_texts() for name, _ in self.paths_of_texts(file)]
        for of, name in places:
            parts = Path(name).parts
            if not parts or Path(name).is_absolute() or ".." in parts or not name.isprintable():
                yield f"the file '{name[:80]}' of {of} must lie beside the description or in --data"

    def _problems_of_rows(self) -> Iterator[str]:
        kind = KINDS[self.kind]
        if not (kind.has_answers or kind.has_queries or kind.of_words) and not self.columns.text:
            yield "columns.text is missing: name the column of the text"
        for key, _ in self._all_texts():
            if self.kind != "retrieval":
                yield f"{key} is a file of a retrieval task, not of {self.type}: leave it out"
            if self.hub is not None:
                yield f"{key} is a file, but hub is not: give the splits as files"
        if self.kind == "retrieval" and self.unlabelled:
            yield "unlabelled is for splits that are only predicted, but a retrieval task has none: leave it out"
        if self.type in ("pair", "similarity") and self.columns.pair is None:
            yield f"columns.pair is missing: the type {self.type} needs two texts"
        if self.columns.label_columns and not kind.has_several:
            yield f"columns.label_columns are for multi_label, not for {self.type}: name one column as label"
        if kind.has_classes and len(set(self.classes)) < 2:
            yield "labels is missing: name two classes or more, in the order of their numbers"
        if len(set(self.labels)) < len(self.labels) or not all(label.strip() for label in self.labels):
            yield "labels must differ, and none may be empty"
        if not kind.has_classes and self.labels:
            yield f"labels are for classification and pair, not for {self.type}"
        known = self._metrics
        if kind.of_words:
            try:
                check_tags(self.labels)
            except CorpusError as error:
                yield f"labels: {error}"
            if any(file.header for files in self.files.values() for file in files):
                yield "header is for tables with a row per line: the fields of a word are numbered from 1"
        yield from (
            f"{self.type} has no metric '{it}'.{suggestion(it, known)}" for it in self.metric if it not in known
        )

    @property
    def _metrics(self) -> tuple[str, ...]:
        """Those that can score it: parts of speech have no entities."""
        known = METRIC_NAMES[self.kind]
        entities = not KINDS[self.kind].of_words or marks_entities(self.labels)
        return known if entities else tuple(name for name in known if not name.endswith("_entity"))

    def _problems_of_splits(self) -> Iterator[str]:
        known = self.split_names
        for split in self.unlabelled:
            if split not in known or split in (self.train, self.select):
                yield f"unlabelled names '{split}', which is not a split that is only predicted"
        named = {
            "parts": [part for parts in self.parts.values() for part in parts],
            "rows": [*self.rows, *(self.hub.rows if self.hub is not None else ())],
            "language": self.language if isinstance(self.language, dict) else (),
            "scored": self.scored or (),
            "second_choice": self.second_choice,
            "submissions": self.submissions,
        }
        for key, splits in named.items():
            for split in splits:
                if split not in known or (key in ("scored", "second_choice") and split in self.unlabelled):
                    yield f"{key} names '{split}'.{suggestion(split, known)}"
        if ":" not in self.train and not KINDS[self.kind].of_vectors and self.train not in known:
            yield f"there is no split '{self.train}' to train on.{suggestion(self.train, known)}"

    @property
    def kind(self) -> TaskKind:
        """The kind of task: a pair is a classification of two texts."""
        return "classification" if self.type == "pair" else self.type

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their numbers: `labels`, else the columns of 0 and 1."""
        return self.labels or self.columns.label_columns

    @cached_property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits, in the order of the description."""
        return tuple(dict.fromkeys((*self.parts, *self.files, *(self.hub.splits if self.hub is not None else ()))))

    def paths(self, split: str) -> list[tuple[str, FileSource]]:
        """Return every name that the file of a split may have, in the order of preference."""
        folders = [f"{folder}/" if folder else "" for folder in self.folders]
        return [(folder + name, file) for file in self.files.get(split, ()) for folder in folders for name in file.path]

    def texts(self, rows: FileSource | None = None) -> dict[str, TextFile]:
        """Return the files of the texts that the rows of a file name by their ids: `queries`, `documents`."""
        found = {key: getattr(rows, key, None) or getattr(self, key) for key in ("queries", "documents")}
        return {key: file for key, file in found.items() if file is not None}

    def _all_texts(self) -> list[tuple[str, TextFile]]:
        return [pair for rows in (None, *itertools.chain(*self.files.values())) for pair in self.texts(rows).items()]

    def paths_of_texts(self, file: TextFile) -> list[tuple[str, FileSource]]:
        """Return every name that a file of `texts` may have, in the order of preference."""
        folders = [f"{folder}/" if folder else "" for folder in self.folders]
        return [(folder + name, FileSource(path=(name,))) for folder in folders for name in file.path]

    def on_hub(self, split: str) -> tuple[HubSource, HubSplit] | None:
        """Return the data set and its split that a split is read from; None where there is none."""
        hub = self.hub
        if hub is None or split in self.parts or (hub.splits and split not in hub.splits):
            return None
        found = hub.splits.get(split) or HubSplit(split=split)
        return hub, HubSplit(split=found.split, config=found.config or hub.config)

    @property
    def development(self) -> str | None:
        """The split that is there to choose by; None where a test split alone is held out, and stands in for it."""
        select = self.task.select
        if "select" in self.model_fields_set or select is None or not select.startswith(_TEST):
            return select
        return next((name for name in self._held_out if not name.startswith(_TEST)), None)

    @property
    def _held_out(self) -> list[str]:
        own = (self.train, *self.unlabelled, *self.parts)
        return [name for name in self.split_names if name not in own]

    @cached_property
    def task(self) -> Task:
        """The task."""
        labelled = [name for name in self.split_names if name not in self.unlabelled]
        held_out = self._held_out
        is_trained = not KINDS[self.kind].of_vectors
        select = self.select if ":" in self.select or self.select in labelled else next(iter(held_out), None)
        languages = self.language if isinstance(self.language, dict) else dict.fromkeys(self.split_names, self.language)
        return Task(
            name=self.name,
            title=self.title or self.name,
            group=self.group,
            kind=self.kind,
            labels=self.classes,
            metrics=self.metric or self._metrics,
            train=self.train if is_trained else None,
            select=select if is_trained else None,
            scored=tuple(held_out if is_trained else labelled) if self.scored is None else self.scored,
            predicted=self.unlabelled,
            splits={
                name: SplitFacts(self.rows.get(name), name in labelled, languages.get(name, "en"))
                for name in self.split_names
            },
            answerable_only=not self.no_answers,
            answer_rules=self.answer_rules,
            submissions=self.submissions,
        )


def _written_out(value: Any, each: Mapping[str, Sequence[str]], chosen: Mapping[str, str]) -> Any:
    """Return plain values with every key and listed text that has a `{name}` once for each value of that name."""
    if isinstance(value, dict):
        return {
            text: _written_out(item, each, more)
            for key, item in value.items()
            for text, more in _choices(key, each, chosen)
        }
    if isinstance(value, list):
        return [_written_out(item, each, more) for part in value for item, more in _choices(part, each, chosen)]
    return _put_in(value, chosen)


def _choices(text: Any, each: Mapping[str, Any], chosen: Mapping[str, str]) -> Iterator[tuple[Any, dict[str, str]]]:
    free = [name for name in each if isinstance(text, str) and name not in chosen and f"{{{name}}}" in text]
    for values in itertools.product(*(map(str, each[name]) for name in free)):
        more = {**chosen, **dict(zip(free, values, strict=True))}
        yield _put_in(text, more), more


def _put_in(text: Any, chosen: Mapping[str, str]) -> Any:
    for name, value in chosen.items() if isinstance(text, str) else ():
        text = text.replace(f"{{{name}}}", value)
    return text


class _BuiltInTask(TaskDefinition):
    """A task of the package: the groups that `--tasks` knows it by, and its place among the others."""

    listed_in: tuple[str, ...] = ()
    order: int


def read_own_task(path: Path) -> TaskDefinition:
    """Read a user's description of a task.

    Args:
        path: The YAML file.

    Raises:
        CorpusError: if the file cannot be read.
        RecipeError: if it is not YAML, has an unknown key, contradicts itself, or has the name of a built-in task.
    """
    described = _read(path, TaskDefinition)
    problem = ""
    if described.name in TASKS:  # Tables and published rows know a task by its name.
        problem = f"name: '{described.name}' is a task of limbeck; give the task another name"
    for key, split in (("train", described.train), ("select", described.select)):
        other = split.rpartition(":")[0]
        if ":" in split and other not in TASKS:
            problem = f"{key} names the split '{split}' of no task.{suggestion(other, TASKS)}".rstrip(".")
    if problem:
        raise RecipeError(f"The task file '{path}': {problem}.")
    return described


D = TypeVar("D", bound=TaskDefinition)


def _read(path: Path, kind: type[D]) -> D:
    content = read_document(path, f"The task file '{path}'", "give a YAML file that describes a task.", CorpusError)
    if not isinstance(content, dict):
        raise RecipeError(f"The task file '{path}' must be a mapping with name, type, columns and files or hub.")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problem = mistakes_of(error)[0].removeprefix("recipe: ")
        raise RecipeError(f"The task file '{path}': {problem}") from None


@cache
def _built_in() -> list[_BuiltInTask]:
    found = (_read(path, _BuiltInTask) for path in (DATA / "tasks").glob("*.yaml"))
    return sorted(found, key=lambda described: described.order)


def _groups() -> Iterator[tuple[str, tuple[str, ...]]]:
    for group in dict.fromkeys(group for described in _built_in() for group in described.listed_in):
        yield group, tuple(described.name for described in _built_in() if group in described.listed_in)


DEFINITIONS: Registry[TaskDefinition] = Registry("task", source=lambda: ((each.name, each) for each in _built_in()))
"""Name to task and sources."""

TASKS: Registry[Task] = Registry("task", source=lambda: ((each.name, each.task) for each in _built_in()))
"""Name to task."""

TASK_GROUPS: Registry[tuple[str, ...]] = Registry("group of tasks", source=_groups)
"""Name of a group to its tasks; `chinese` has those of ELM's table 7."""


def check_data(folder: Path | None) -> None:
    """Refuse a folder of tasks' files that is not there.

    Raises:
        CorpusError: for such a folder.
    """
    if folder is not None and not folder.is_dir():
        raise CorpusError(f"The data folder '{folder}' does not exist{tried_beside(str(folder))}.")


def is_own_task(name: str) -> bool:
    """Whether a name is the path of a YAML file that describes a task."""
    return Path(name).suffix.lower() in (".yaml", ".yml")


def find_task(name: str) -> TaskDefinition:
    """Return a task and its sources.

    Args:
        name: A key of `TASKS`, or the path of a YAML file that describes a task.

    Raises:
        RecipeError: for an unknown task, or a description that is wrong.
        CorpusError: for a file that cannot be read.
    """
    return read_own_task(Path(name).expanduser()) if is_own_task(name) else DEFINITIONS[name]


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (RuntimeError, OSError):  # The home of a user who is not known, or a name too long for the system.
        return False


def parse_tasks(text: str) -> list[str]:
    """Return the names in a comma-separated list, groups expanded, each once and in order.

    Args:
        text: Names of tasks and groups, and paths of YAML files, for example `"glue,squad,my_task.yaml"`.

    Raises:
        RecipeError: for a name that is neither, with a suggestion, and for an empty list.
        CorpusError: for a YAML file that does not exist.
    """
    found: dict[str, None] = {}
    groups = dict(TASK_GROUPS.items())
    for name in filter(None, (part.strip() for part in text.split(","))):
        if is_own_task(name):
            if not _is_file(name):
                raise CorpusError(f"The task file '{name}' does not exist{tried_beside(name)}.")
            found[name] = None
        elif name in groups or name in TASKS:
            found |= dict.fromkeys(groups.get(name, (name,)))
        else:
            raise RecipeError(f"Unknown task '{name}'.{suggestion(name, [*groups, *TASKS])}")
    if not found:
        raise RecipeError(f"'{text}' names no task.{suggestion(text, [*groups, *TASKS])}")
    return list(found)
