"""`TaskDefinition`, the schema of a task's description in YAML: its classes, metrics, splits, and sources of rows.

A split has a *role*: rows are trained on, settings are *selected* on it, it is *scored* (labelled), or only *predicted*
(unlabelled). A *joint* split is made of other splits, its *parts*.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator, model_validator

from limbeck.core.kinds import KINDS as FACTS
from limbeck.core.kinds import KindFacts
from limbeck.core.metric_names import (
    MetricNames,
    PositiveClass,
    class_as_text,
    class_named,
    problem_of_positive,
    problems_of_metrics,
)
from limbeck.core.strict import Strict
from limbeck.corpus.files.file_kinds import Quotes
from limbeck.corpus.rows.tags import check_tags, entity_tags
from limbeck.corpus.settings.parallel import Parallel
from limbeck.errors import CorpusError, suggestion
from limbeck.evaluation.tasks.each_values import write_out_each
from limbeck.evaluation.tasks.parallel_task import write_out_parallel
from limbeck.evaluation.tasks.sources import (
    Files,
    FileSource,
    HubPlace,
    HubSource,
    HubSplit,
    PossibleFile,
    TextFile,
    Texts,
)
from limbeck.kinds.columns import Columns
from limbeck.kinds.task import AnswerRules, SplitFacts, Submission, Task

_PAIR = "pair"
"""A value of `type` that is not the name of a kind: it stands for a classification of two texts."""
_TEST = "test"
"""Beginning of the names of splits that should only be scored, so that no settings are chosen on them."""
_LONGEST_TITLE = 200
_SHOWN_CHARACTERS = 40
_SHOWN_CHARACTERS_OF_FILE = 80
_SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def _known_type(name: str) -> str:
    """Return the name of a type of task, or refuse one that is unknown."""
    if name != _PAIR and name not in FACTS:
        raise ValueError(f"'{name}' is not a type of task.{suggestion(name, [*FACTS, _PAIR])}")
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
    0 and 1 for each class), `label_lists` (`numbers` or `flags`, where lists in `label` can be either), `id`; of
    questions `context`, `question` and `answers`, as SQuAD has them; of tagged words `tokens` and `tags`, or numbers of
    fields; of rankings and retrieval `query` and `documents`, one column or several. Those left out, except `text`,
    `pair` and `id`, are looked for by these names."""
    labels: tuple[str, ...] = ()
    """Class names in the order of their numbers; rows may hold either. Needed wherever there are classes, unless
    `label_columns` names them."""
    metric: MetricNames = ()
    """One or several of the table of metrics, the main one first; by default those that the table names."""
    positive: PositiveClass = None
    """The class that the metric `f1` is of, as `labels` has it. Without it there is no `f1`, but `macro_f1`,
    `micro_f1` and `weighted_f1`."""
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
    quotes: Quotes | None = None
    """Quotation marks in tables between tabs: `fields`, as pandas writes them, or `characters` like any other, as in
    GLUE's files; by default limbeck looks at the file."""
    hub: HubSource | None = None
    """A data set: `name`, `config`, `revision`; `splits`, the task's to the data set's or to its `split` and `config`;
    `columns` and `rows` where they differ from those of the files."""
    queries: Texts = None
    """Of a retrieval, the file of the queries that rows name by their ids; or its `path`, `id` and `text` (one column
    or several), by default `_id` and `text`. Without it rows hold the queries."""
    documents: Texts = None
    """The same for documents."""
    parallel: Parallel | None = None
    """In place of `type`, `columns` and `files`: text files of several languages with aligned lines,
    `{en: FILE, de: FILE}`, or one table or TMX file, `{file: FILE, languages: [en, de]}`, with `columns` where these
    are not named like the languages (`[2, 4]` are fields of a table without a header). Each sentence of the first
    language looks for its translation in each of the others (split `test.en.de`), and the other way round."""
    parts: dict[str, tuple[str, ...]] = Field({})
    """A split to the splits that are joined, in order, to make it."""
    rows: dict[str, int] = Field({})
    """Split to its published number of rows; a difference is noted."""
    language: str | dict[str, str] = "en"
    """ISO 639-1, or split to language."""
    train: str = "train"
    """The split to train on; `mnli:train` is another task's. A task without one is for models as they are."""
    select: str = "validation"
    """The split to choose settings on, also another task's. Where it does not exist: the first labelled one whose name
    does not begin with `test`. If there is none and something is chosen: rows of `train` (500 or a tenth, in whole
    groups of near duplicates)."""
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
        return write_out_parallel(write_out_each(data))

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_text(cls, value: Any) -> Any:
        """Return the class names as text; numbers are taken, other values of YAML are refused."""
        if not isinstance(value, list):
            return value
        return tuple(class_as_text(label, "label") for label in value)

    @field_validator("title", "language")
    @classmethod
    def _is_one_line(cls, value: Any) -> Any:
        """Refuse text that would break a line of a table."""
        texts = list(value.values()) if isinstance(value, dict) else [value]
        for text in texts:
            if text is None:
                continue
            has_good_length = 0 < len(text.strip()) <= _LONGEST_TITLE
            if not text.isprintable() or not has_good_length:
                raise ValueError(
                    f"{text[:_SHOWN_CHARACTERS]!r} must be a single line of 1 to {_LONGEST_TITLE} printable characters"
                )
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> TaskDefinition:
        """Refuse a description that contradicts itself, by the first problem."""
        problems = itertools.chain(
            self._problems_of_names(),
            self._problems_of_columns(),
            self._problems_of_classes(),
            self._problems_of_metrics(),
            self._problems_of_splits(),
        )
        first_problem = next(problems, None)
        if first_problem is not None:
            raise ValueError(first_problem)
        return self

    def _problems_of_names(self) -> Iterator[str]:
        """Yield problems with names of splits and files.

        A description may come from an untrusted source, so its files must lie below the folders that are searched.
        """
        if not self.files and self.hub is None:
            yield "give files, hub or both"
        if not self.split_names:
            yield "hub names no split: give at least one, such as validation"
        for split in self.split_names:
            # The name becomes part of the names of files with predictions.
            if not _SPLIT_NAME.fullmatch(split):
                shown = split[:_SHOWN_CHARACTERS]
                yield f"the name of the split {shown!r} must consist of letters, digits, '.', '-' and '_'"

        for split in self.split_names:
            for file in self.paths(split):
                if not _is_near(file.name):
                    yield _far_file(file.name, split)
        for key, text_file in self._all_text_files():
            for file in self.paths_of_texts(text_file):
                if not _is_near(file.name):
                    yield _far_file(file.name, key)

    def _problems_of_columns(self) -> Iterator[str]:
        """Yield problems with the columns of rows, and with the files of queries and documents."""
        facts = self.facts
        if self._has_parallel_files and not facts.has_text_files:
            yield f"parallel is for a retrieval, not for {self.type}: leave type out"
        if "text" in facts.columns and not self.columns.text:
            yield "columns.text is missing: name the column of the text"
        for key, _ in self._all_text_files():
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
        has_header = any(source.header for source in self._all_sources())
        if "tokens" in facts.columns and has_header:
            yield "header is for tables with a row per line: the fields of a word are numbered from 1"

    def _problems_of_classes(self) -> Iterator[str]:
        """Yield problems with the classes."""
        facts = self.facts
        if facts.has_classes and len(self.classes) < 2:
            yield "labels is missing: name two classes or more, in the order of their numbers"
        has_twins = len(set(self.labels)) < len(self.labels)
        has_empty = any(not label.strip() for label in self.labels)
        if has_twins or has_empty:
            yield "labels must differ, and none may be empty"
        if not facts.has_classes and self.labels:
            yield f"labels are for classification and pair, not for {self.type}"
        if "tags" in facts.columns:
            try:
                check_tags(self.labels)
            except CorpusError as error:
                yield f"labels: {error}"

    def _problems_of_metrics(self) -> Iterator[str]:
        """Yield problems with the metrics, and with the class that one of them is of."""
        yield from problems_of_metrics(
            self.metric,
            self.positive,
            known=self._metrics(self.facts.metrics),
            of_class=self.facts.metrics_of_class,
            kind=self.type,
        )
        if self.positive is not None and self.facts.has_classes:
            problem = problem_of_positive(self.positive, self.classes)
            if problem is not None:
                yield problem

    def _problems_of_splits(self) -> Iterator[str]:
        """Yield problems with the roles of splits: unknown names, and roles that a split cannot have."""
        known = self.split_names
        for split in self.unlabelled:
            is_trained_or_selected_on = split in (self.train, self.select)
            if split not in known or is_trained_or_selected_on:
                yield f"unlabelled names '{split}', which is not a split that is only predicted"

        for key, splits in self._splits_by_key():
            needs_labels = key in ("scored", "second_choice")
            for split in splits:
                lacks_labels = needs_labels and split in self.unlabelled
                if split not in known or lacks_labels:
                    yield f"{key} names '{split}'.{suggestion(split, known)}"

        # A task without a split to train on is allowed, for models that are scored as they are. It is a mistake only if
        # the description names the split.
        is_named = "train" in self.model_fields_set
        if is_named and self.is_trained and not self._has_train_split:
            yield f"there is no split '{self.train}' to train on.{suggestion(self.train, known)}"

    def _splits_by_key(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield each key of the description that names splits, with the names of these splits.

        A key comes several times where several places of the description have it.
        """
        for parts in self.parts.values():
            yield "parts", parts
        yield "rows", list(self.rows)
        if self.hub is not None:
            yield "rows", list(self.hub.rows)
        if isinstance(self.language, dict):
            yield "language", list(self.language)
        yield "scored", self.scored or ()
        yield "second_choice", self.second_choice
        yield "submissions", list(self.submissions)

    @property
    def kind(self) -> str:
        """Name of the kind of task: a pair is a classification of two texts."""
        return "classification" if self.type == _PAIR else self.type

    @property
    def facts(self) -> KindFacts:
        """The facts of its kind."""
        return FACTS[self.kind]

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
        names = [*self.parts, *self.files]
        if self.hub is not None:
            names += self.hub.splits
        return tuple(dict.fromkeys(names))

    def paths(self, split: str) -> list[PossibleFile]:
        """Return every name that the file of a split may have, in the order of preference."""
        files: list[PossibleFile] = []
        for source in self.files.get(split, ()):
            files += [PossibleFile(path, source) for path in self._in_folders(source.path)]
        return files

    def paths_of_texts(self, file: TextFile) -> list[PossibleFile]:
        """Return every name that a file of `texts` may have, in the order of preference."""
        source = FileSource(path=file.path)
        return [PossibleFile(path, source) for path in self._in_folders(file.path)]

    def texts(self, rows: FileSource | None = None) -> dict[str, TextFile]:
        """Return the files of the texts that the rows of a file name by their ids: `queries`, `documents`.

        Args:
            rows: The file of the rows, which may name its own files of texts; these take precedence over the task's.
                None returns the task's.
        """
        files = {"queries": self.queries, "documents": self.documents}
        if rows is not None:
            files["queries"] = rows.queries or self.queries
            files["documents"] = rows.documents or self.documents
        return {key: file for key, file in files.items() if file is not None}

    def on_hub(self, split: str) -> HubPlace | None:
        """Return the place of a split on the Hub; None for a split that is not there, or that is joint."""
        hub = self.hub
        if hub is None or split in self.parts:
            return None
        if not hub.splits:
            # If the description maps no names, the data set has splits with the task's names.
            return HubPlace(hub, HubSplit(split=split, config=hub.config))
        if split not in hub.splits:
            return None
        split_of_hub = hub.splits[split]
        return HubPlace(hub, HubSplit(split=split_of_hub.split, config=split_of_hub.config or hub.config))

    @property
    def development(self) -> str | None:
        """The split on which settings may be chosen; None if the task has only test splits beside the rows to train on.

        `task.select` may be a test split where there is no other.
        """
        select = self.task.select
        if select is None or not self.may_choose_on(select):
            return None
        return select

    def may_choose_on(self, split: str) -> bool:
        """Whether settings may be chosen on a labelled split: on a test split only if `select` names it."""
        is_named = "select" in self.model_fields_set and split == self.select
        return is_named or not split.startswith(_TEST)

    @cached_property
    def task(self) -> Task:
        """The task."""
        # Where sentence vectors are compared, nothing is trained and nothing is chosen.
        train = None
        select = None
        if self.is_trained:
            train = self.train if self._has_train_split else None
            select = self._select_split()
        positive = None
        if self.positive is not None:
            positive = class_named(self.positive, self.classes)
        usual_metrics = self._metrics(self.facts.default_metrics(self.positive))
        return Task(
            name=self.name,
            title=self.title or self.name,
            group=self.group,
            kind=self.kind,
            labels=self.classes,
            metrics=self.metric or usual_metrics,
            positive=positive,
            train=train,
            select=select,
            scored=self._scored_splits(),
            predicted=self.unlabelled,
            splits={name: self._facts_of_split(name) for name in self.split_names},
            answerable_only=not self.no_answers,
            answer_rules=self.answer_rules,
            submissions=self.submissions,
        )

    def _facts_of_split(self, name: str) -> SplitFacts:
        """Return the facts of a split, by its name."""
        language = self.language
        if isinstance(language, dict):
            language = language.get(name, "en")
        return SplitFacts(published_rows=self.rows.get(name), labelled=name not in self.unlabelled, language=language)

    @property
    def _has_train_split(self) -> bool:
        """Whether there are rows to train on. A split of another task, such as `mnli:train`, is checked later."""
        is_other_tasks = ":" in self.train
        return is_other_tasks or self.train in self.split_names

    def _select_split(self) -> str | None:
        """Return the split to choose settings on; None without any.

        It is `select`, else the first that is held out and no test split, else the first that is held out.
        """
        is_other_tasks = ":" in self.select
        if is_other_tasks or self.select in self._labelled:
            return self.select
        for name in self._held_out:
            if self.may_choose_on(name):
                return name
        return next(iter(self._held_out), None)

    def _scored_splits(self) -> tuple[str, ...]:
        """Return the splits to score: `scored`, else all that have labels and are not trained on."""
        if self.scored is not None:
            return self.scored
        if self.is_trained:
            return tuple(self._held_out)
        return tuple(self._labelled)

    def _metrics(self, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of some metrics that can score the task.

        Metrics of entities are left out if the tags mark none, as those of parts of speech.
        """
        if "tags" in self.facts.columns and entity_tags(self.labels) is None:
            return tuple(name for name in metrics if not name.endswith("_entity"))
        return metrics

    @property
    def _labelled(self) -> list[str]:
        """Names of the labelled splits."""
        return [name for name in self.split_names if name not in self.unlabelled]

    @property
    def _held_out(self) -> list[str]:
        """Names of the labelled splits that are not trained on; of joint splits only their parts are named."""
        return [name for name in self._labelled if name != self.train and name not in self.parts]

    @property
    def _has_parallel_files(self) -> bool:
        """Whether some split is read from parallel text."""
        return any(source.parallel is not None for source in self._all_sources())

    def _all_sources(self) -> Iterator[FileSource]:
        """Yield the files of all splits."""
        for sources in self.files.values():
            yield from sources

    def _all_text_files(self) -> list[tuple[str, TextFile]]:
        """Return the files of texts of the task and of all its splits, each with its key."""
        files = list(self.texts().items())
        for source in self._all_sources():
            files += self.texts(source).items()
        return files

    def _in_folders(self, names: Sequence[str]) -> list[str]:
        """Return each name below each of the task's folders, those of the first folder first."""
        paths = []
        for folder in self.folders:
            prefix = f"{folder}/" if folder else ""
            paths += [f"{prefix}{name}" for name in names]
        return paths


def _is_near(name: str) -> bool:
    """Whether the name of a file stays below the folder that it is looked for in, and can be printed."""
    path = Path(name)
    if not path.parts or path.is_absolute():
        return False
    leads_up = ".." in path.parts
    return not leads_up and name.isprintable()


def _far_file(name: str, owner: str) -> str:
    """Return the problem with a file that lies elsewhere; `owner` is the split or the key that names it."""
    shown = name[:_SHOWN_CHARACTERS_OF_FILE]
    return f"the file '{shown}' of {owner} must lie in the folder of the description or in --data"
