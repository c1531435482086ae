"""Rows of tasks: the files of a folder or a Hub data set, each split counted against its published rows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from limbeck.core.blocks import counted
from limbeck.core.kinds import KINDS
from limbeck.corpus import addresses, file_kinds, lines, messages, opening, parquet_files, readers, tables
from limbeck.corpus.file_kinds import PlacedRow
from limbeck.corpus.labelled import (
    ClassNumbers,
    SentenceReader,
    documents_of,
    is_missing,
    parse_value,
    read_several,
)
from limbeck.corpus.source_report import SourceReport
from limbeck.errors import CorpusError, suggestion
from limbeck.evaluation import tasks
from limbeck.evaluation.tasks import Columns, FileSource, SplitFacts, Task, TaskDefinition, TaskRow, TextFile

# A corpus may pass over these, a split may not: its score would be of other rows.
_FATAL = (
    "line of invalid JSON",
    "JSON value that is not an object",
    "file not in UTF-8, skipped",
    "damaged file, read up to the damage",
    "line with bytes that are not UTF-8",
)


def find_file(names: Sequence[tuple[str, FileSource]], folders: Sequence[Path]) -> tuple[Path, FileSource] | None:
    """Return the first file that is there, and its layout.

    Args:
        names: In the order of preference, each also compressed; see `TaskDefinition.paths`.
        folders: In their order, each before its subfolders, in alphabetical order; a name with `*` is looked for in
            the folders alone.
    """
    places = [place for folder in folders for place in (folder, *sorted(folder.glob("*/")))]
    for (name, source), place, ending in itertools.product(names, places, ("", *addresses.COMPRESSIONS)):
        if "*" in name:
            matching = sorted(place.glob(f"{name}{ending}")) if place in folders else []
            if len(matching) == 1 and matching[0].is_file():
                return matching[0], source
            continue
        path = place / f"{name}{ending}"
        with suppress(OSError):  # A name too long for any file.
            if path.is_file():
                return path, source
    return None


def read_split_file(
    path: Path, source: FileSource, report: SourceReport, *, of_words: bool = False
) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split's file.

    Args:
        path: The file.
        source: Its header, where the file has none, and the rows to take.
        report: Receives lines that are left out.
        of_words: Read a table as sentences of tagged words; see `limbeck.corpus.readers.read_rows`.

    Raises:
        CorpusError: if the file cannot be read as a whole, or is of no known kind.
    """
    if source.header:
        rows = _headless_rows(path, source.header, report)
    elif file_kinds.suffix_of(path) not in (known := readers.readable_suffixes("rows")):
        raise CorpusError(f"'{path}' is not of a known kind: give {', '.join(known)}, also with .gz, .xz or .zst.")
    else:
        rows = readers.read_rows(path, report, of_words=of_words)
    for row in rows:
        if all(row.values.get(field) == value for field, value in source.only.items()):
            yield row
    check_whole(str(path), report)


def check_whole(place: str, report: SourceReport) -> None:
    """Refuse a split of whose source something was skipped.

    Args:
        place: The source.
        report: What was skipped.

    Raises:
        CorpusError: if a corpus may pass it over and a split may not.
    """
    for kind in _FATAL:
        if kind in report.counts:
            raise CorpusError(f"'{place}' cannot be read as a whole: {kind} ({report.examples[kind][0]}).")


def _headless_rows(path: Path, header: tuple[str, ...], report: SourceReport) -> Iterator[PlacedRow]:
    """Rows of a tab-separated table whose first line is a row; a quotation mark is a character like any other."""
    with opening.open_file(path, report) as stream:
        for text, _, number in lines.read_lines(stream, path, report):
            where, fields = f"{path}:{number}", text.split("\t")
            if not text:
                continue
            if len(fields) < len(header):
                report.note("row with too few fields", where)
            else:
                yield PlacedRow(where, dict(zip(header, fields, strict=False)))


def read_split_of_hub(source: tasks.HubSource, split: tasks.HubSplit) -> Iterator[PlacedRow]:
    """Iterate over the rows of a split, downloaded as a whole and kept in the cache of `datasets`.

    Args:
        source: The data set.
        split: Its split, and the configuration that has it.

    Raises:
        CorpusError: if the data set cannot be reached, or has no such configuration or split.
    """
    name = " ".join(filter(None, (source.name, split.config)))
    import datasets

    try:
        rows = datasets.load_dataset(source.name, split.config, split=split.split, revision=source.revision)
    except Exception as error:  # The Hub's client raises of many kinds: network, names, formats.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CorpusError(
            f"Cannot load the split '{split.split}' of the Hub data set '{name}': {reason.rstrip('.')}. "
            "Give a folder with its files instead."
        ) from error
    names = parquet_files.class_names(rows.features)
    for number, row in enumerate(rows, start=1):
        yield PlacedRow(f"{name} {split.split}:{number}", row, names)


# Spellings of XNLI's translated training files.
_OTHER_SPELLINGS = {"contradictory": "contradiction"}
UNDECIDED = "-"
"""In place of a class on which the annotators did not agree; the sources do not count such rows."""
_SHOWN_CHARACTERS, _SHOWN_NAMES = 40, 6
TRAIN = "train"
"""The key of the rows to train on, whichever split of whichever task they are."""
READ_WHOLE = ".json"
"""Kind of files whose first row is not known before they are read as a whole."""
NO_PLACE = -1
"""The `answer_start` of an answer that its context does not hold."""


def read_task_rows(
    placed: Iterable[PlacedRow], task: Task, facts: SplitFacts, columns: Columns, report: SourceReport
) -> list[TaskRow]:
    """Return the rows of a split, in the order of the source.

    Args:
        placed: The source's rows.
        task: Decides the columns that a row must have.
        facts: Of the split: whether it is labelled, and its language.
        columns: Where text, label and answers stand.
        report: Receives the rows that are left out and the answers that are moved.

    Raises:
        CorpusError: if a row lacks a column or a label, has a label that is none of the task's, or an id of another.
    """
    rows: list[TaskRow] = []
    ids: set[str] = set()
    kind = KINDS[task.kind]
    owner, tags = f"{task.title}'s", columns.tags if facts.labelled else None
    numbers = ClassNumbers(task.labels, owner) if kind.has_classes else None
    read_sentence = SentenceReader(task.labels, columns.tokens, tags, owner) if kind.of_words else None
    for place in placed:
        if kind.has_answers:
            row = _question_row(place, len(rows), task, facts, columns, report)
            if row.id in ids:
                raise CorpusError(
                    f"{place.where} has the id '{row.id}' of an earlier question: give each question its own."
                )
            ids.add(row.id)
        elif kind.has_queries:
            rows.extend(_document_rows(place, len(rows), task, facts, columns, report))
            continue
        elif read_sentence is not None:
            for column in filter(None, (columns.tokens, tags)):
                _require(place, column)
            sentence = read_sentence(place, report)
            if sentence is None:
                continue
            label = sentence.label if facts.labelled else None
            row = TaskRow(_row_id(place, columns.id, len(rows)), sentence.text, label=label, language=facts.language)
        else:
            text = _text(place, columns.text)
            pair = None if columns.pair is None else _text(place, columns.pair)
            row = TaskRow(_row_id(place, columns.id, len(rows)), text, pair, language=facts.language)
            if facts.labelled:
                row = replace(row, label=_label(place, columns, task, numbers))
                if row.label is None:
                    report.note("row whose class the annotators did not agree on, left out", place.where)
                    continue
        rows.append(row)
    return rows


def _label(
    row: PlacedRow, columns: Columns, task: Task, numbers: ClassNumbers | None
) -> int | float | tuple[int, ...] | None:
    """Return a row's value, or the number of its class; None where the annotators did not agree on a class."""
    column = columns.label
    for name in columns.label_columns or (column,):
        _require(row, name)
    value: Any = row.values.get(column)
    if numbers is not None and KINDS[task.kind].has_several:
        found = read_several(row, numbers, column, columns.label_columns)
        if found is None:
            raise CorpusError(f"{row.where} is unlabelled (its {column} is null), but the split must be labelled.")
        return found
    if numbers is not None and value == UNDECIDED and UNDECIDED not in task.labels:
        return None
    if is_missing(value) or (numbers is not None and value in (-1, "-1") and value not in numbers):
        raise CorpusError(f"{row.where} is unlabelled (its {column} is {value!r}), but the split must be labelled.")
    if numbers is None:
        return parse_value(value, row.where)
    spelt = _OTHER_SPELLINGS.get(value, value) if isinstance(value, str) else value
    return numbers.number(spelt, row.where, row.class_names.get(column, ()))


def _question_row(
    row: PlacedRow, number: int, task: Task, facts: SplitFacts, columns: Columns, report: SourceReport
) -> TaskRow:
    context, question = _text(row, columns.context), _text(row, columns.question)
    found = TaskRow(_row_id(row, columns.id or "id", number), context, question, language=facts.language)
    if not facts.labelled:
        return found
    _require(row, columns.answers)
    pairs = [] if row.values.get("is_impossible") else _answers(row, columns.answers)
    if not pairs and task.answerable_only:
        raise CorpusError(f"{row.where} has no answer, but every question of {task.title} has one.")
    starts = tuple(_place(context, answer, start, row.where, report) for answer, start in pairs)
    return replace(found, answers=tuple(answer for answer, _ in pairs), answer_starts=starts)


def _document_rows(
    row: PlacedRow, number: int, task: Task, facts: SplitFacts, columns: Columns, report: SourceReport
) -> Iterator[TaskRow]:
    """Iterate over the documents of a row's query; those of a retrieval are relevant unless the row says otherwise."""
    query, named = _text(row, columns.query), _row_id(row, columns.id, number)
    for column in columns.documents:
        _require(row, column)
    found = documents_of(row, columns.documents, columns.label)
    if not found:
        report.note("query without a document, left out", row.where)
    if not query.strip() and KINDS[task.kind].of_vectors:
        report.note("query without a text, left out", row.where)
        return
    if KINDS[task.kind].of_vectors and row.values.get("is_impossible"):
        report.note("question that its paragraph does not answer, left out", row.where)
        query, found = "", [(text, 0.0) for text, _ in found]
    for place, (text, label) in enumerate(found):
        if label is None and KINDS[task.kind].of_vectors:
            label = 1.0
        if facts.labelled and label is None:
            raise CorpusError(
                f"{row.where} has documents without relevance: give them labels in the column '{columns.label}', or "
                "the relevant documents in a column before the others."
            )
        own = named if len(found) == 1 else f"{named}.{place}"
        yield TaskRow(own, query, text, label if facts.labelled else None, language=facts.language)


def _answers(row: PlacedRow, column: str) -> list[tuple[str, int]]:
    """Texts and starts, from lists side by side or from a list of answers; blank ones are none."""
    value = row.values[column]
    if is_missing(value):
        return []
    try:
        if isinstance(value, Mapping):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in value]
        if any(int(start) != float(start) for _, start in pairs):
            raise ValueError("not whole")
        return [(str(text), int(start)) for text, start in pairs if str(text).strip()]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"The answers of {row.where} are not in the format of SQuAD: a text and an answer_start for each."
        ) from error


def _place(context: str, answer: str, start: int, where: str, report: SourceReport) -> int:
    """Return where the answer stands: at `start`, or at the nearest place where the context has it."""
    if start >= 0 and context.startswith(answer, start):
        return start
    places = [found.start() for found in re.finditer(f"(?={re.escape(answer)})", context)]
    if not places:
        report.note("answer that its context does not contain, kept for scoring only", where)
        return NO_PLACE
    report.note("answer that is not at its answer_start, taken at the nearest place", where)
    return min(places, key=lambda place: abs(place - start))


def _row_id(row: PlacedRow, column: str | None, number: int) -> str:
    value = row.values.get(column) if column is not None else None
    return str(number if is_missing(value) else value)


def _text(row: PlacedRow, column: str) -> str:
    _require(row, column)
    value: Any = row.values[column]
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if value is not None and not isinstance(value, str):
        raise CorpusError(f"{row.where} has no text in its column '{column}', but {value!r}.")
    return value or ""


def _require(row: PlacedRow, column: str) -> None:
    if column not in row.values:
        if problem := tables.headless(row):
            raise CorpusError(
                f"{problem}; name its {len(row.values)} fields in the task file, "
                f"{{path: FILE, header: [{column}, …]}}, or give a file with a header."
            )
        # The first row of a table without a header may be whole texts.
        names = [str(name)[:_SHOWN_CHARACTERS] for name in row.values]
        raise CorpusError(f"{row.where} has no column '{column}'; it has {messages.list_columns(names)}.")


def name_some(names: Collection[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = list(names)[:_SHOWN_NAMES]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def load_task(
    name: str, *, data: Path | None, splits: Collection[str] | None = None, training: bool = True
) -> tasks.TaskData:
    """Return the rows of a task.

    Without `splits`, everything that the task trains on, selects on, scores and predicts is loaded as far as it is
    there; the others are noted. Where none of the scored splits is there, the second choice of the task is
    scored in their place (the development sets of XNLI and MLQA). The task of the result names the
    splits that were loaded.

    Args:
        name: A key of `TASKS`, or the path of a YAML file that describes an own task.
        data: Folder with the task's files, in it or in its subfolders; None for the Hub. The files of an own task are
            looked for beside its YAML first, unless it is on the Hub and there is no data folder.
        splits: Load these, all of which must be there: `"train"`, splits of the task, or `"other task:split"`.
        training: Load the rows to train and to select on too, and not only those that are scored or predicted.

    Raises:
        RecipeError: for an unknown task.
        CorpusError: for a missing or empty file, an unknown split, wrong columns, or a label outside the set.
    """
    found = _splits_of(name, data)
    missing: list[str] = []
    if splits is None:
        splits, missing = _what_is_there(found, training=training)
    # The parts of a joint split are also read by themselves.
    notes: dict[str, None] = {}
    rows = {key: found.read(key, notes) for key in splits}
    if missing:
        notes[f"{found.definition.task.title}: no {name_some(missing)} file{'s' * (len(missing) > 1)} found"] = None
    return tasks.TaskData(_narrowed(found.definition, rows), rows, tuple(notes))


def check_scored(name: str, *, data: Path | None) -> None:
    """Refuse a task of which `load_task` without training would give no row to score, as far as little reading tells.

    Args:
        name: As for `load_task`.
        data: As for `load_task`.

    Raises:
        RecipeError: for an unknown task.
        CorpusError: for a missing file, wrong columns, or a label outside the set, of the first row of each split.
    """
    found = _splits_of(name, data)
    there, _ = _what_is_there(found, training=False)
    task = _narrowed(found.definition, dict.fromkeys(there))
    if not task.scored:
        raise CorpusError(f"{task.title} has no labelled split there: give a folder with its development rows.")
    for key in (part for split in task.scored for part in found.whole(split)):
        found.check(key)


def _splits_of(name: str, data: Path | None) -> Splits:
    tasks.check_data(data)
    beside = Path(name).expanduser().parent if tasks.is_own_task(name) else None
    return Splits(tasks.find_task(name), beside, data)


@dataclass(frozen=True)
class Splits:
    """The splits of a task, and those of other tasks that it refers to, in folders or on the Hub.

    Args:
        definition: The task.
        beside: The folder of its description, where it is a user's.
        data: The folder that the user gave; None for the Hub.
    """

    definition: TaskDefinition
    beside: Path | None
    data: Path | None

    def has(self, key: str) -> bool:
        """Whether a split is there: of the Hub, whether it is known to be."""
        definition, split, folders = self._locate(key)
        if split in definition.parts:
            return any(map(self.has, self._parts(definition, split)))
        if folders:
            return find_file(definition.paths(split), folders) is not None
        return definition.on_hub(split) is not None

    def whole(self, key: str) -> list[str]:
        """Return the keys of the splits that a split is made of: of a joint one its parts that are there."""
        definition, split, _ = self._locate(key)
        return list(filter(self.has, self._parts(definition, split))) if split in definition.parts else [key]

    def place(self, key: str) -> str:
        """Return the file of a whole split, or its data set as a corpus names it.

        Raises:
            CorpusError: if it is not there.
        """
        definition, split, folders = self._locate(key)
        if folders:
            return str(_find_split(definition, split, folders)[0])
        on_hub = definition.on_hub(split)
        if on_hub is None:
            raise CorpusError(f"{definition.task.title} is not on the Hub: give a folder with its files.")
        source, found = on_hub
        revision = f"#{source.revision}" if source.revision else ""
        return f"hub:{source.name}{f':{found.config}' if found.config else ''}@{found.split}{revision}"

    def check(self, key: str) -> None:
        """Refuse the file of a whole split whose first row is none of the task, unless it is read as a whole."""
        definition, split, folders = self._locate(key)
        if folders:
            path, source = _find_split(definition, split, folders)
            if file_kinds.suffix_of(path) != READ_WHOLE:
                of_words = KINDS[definition.kind].of_words
                first = itertools.islice(read_split_file(path, source, SourceReport(), of_words=of_words), 1)
                facts, columns = definition.task.splits[split], source.columns or definition.columns
                read_task_rows(first, definition.task, facts, columns, SourceReport())

    def read(self, key: str, notes: dict[str, None], told: SourceReport | None = None) -> list[TaskRow]:
        """Return the rows of a split.

        Args:
            key: A split of the task, `"train"`, or `"other task:split"`.
            notes: Receives row counts beside the published ones, and rows that were left out, as its keys.
            told: Receives the same as counts.

        Raises:
            CorpusError: if it is not there, cannot be read, or has no rows.
        """
        definition, split, folders = self._locate(key)
        task, facts = definition.task, definition.task.splits[split]
        if split in definition.parts:
            return self._read_parts(task, split, self._parts(definition, split), notes, told)
        report, published = SourceReport(), facts.published_rows
        source: FileSource | None = None
        if not folders:
            on_hub = definition.on_hub(split)
            if on_hub is None:
                raise CorpusError(f"{task.title} is not on the Hub: give a folder with its files.")
            hub = on_hub[0]
            placed, columns, origin = read_split_of_hub(*on_hub), hub.columns, f"The Hub's '{hub.name}'"
            published = hub.rows.get(split, published)
        else:
            path, source = _find_split(definition, split, folders)
            placed = read_split_file(path, source, report, of_words=KINDS[task.kind].of_words)
            columns, origin = source.columns, f"'{path}'"
        rows = read_task_rows(placed, task, facts, columns or definition.columns, report)
        texts = {
            key: _read_texts(definition, key, file, folders, report) for key, file in definition.texts(source).items()
        }
        if not rows:
            why = f": {'; '.join(report.lines())}" if report.lines() else ""
            raise CorpusError(f"{origin} holds no row of the split '{split}' of {task.title}{why}.")
        others = "" if published is None else f" ({tasks.PUBLISHED} {published:,})"
        found = [counted(len(rows), "row") + others] if published != len(rows) else []
        notes |= dict.fromkeys(f"{task.title} {split}: {line}" for line in (*found, *report.lines()))
        if told is not None:
            told.merge(report)
            if published not in (None, len(rows)):
                told.note(f"row of {task.title} {split}, of which {published:,} are published", origin, len(rows))
        if definition.kind == "retrieval":
            rows = _put_texts(rows, texts, origin)
            queries, documents = {row.keys[0] for row in rows if row.text}, {row.keys[1] for row in rows}
            asked, among = counted(len(queries), "query"), counted(len(documents), "document")
            notes[f"{task.title} {split}: {asked}, {among}"] = None
        return rows

    def _read_parts(
        self, task: Task, split: str, parts: Sequence[str], notes: dict[str, None], told: SourceReport | None
    ) -> list[TaskRow]:
        there = [part for part in parts if self.has(part)]
        if not there:
            raise CorpusError(f"None of the splits {name_some(parts)} of {task.title} is there.")
        rows = [row for part in there for row in self.read(part, notes, told)]
        if len(there) < len(parts):
            notes[f"{task.title} {split}: assembled from {len(there)} of its {len(parts)} parts"] = None
        return rows

    def _parts(self, definition: TaskDefinition, split: str) -> list[str]:
        other = "" if definition is self.definition else f"{definition.name}:"
        return [f"{other}{part}" for part in definition.parts[split]]

    def _locate(self, key: str) -> tuple[TaskDefinition, str, list[Path]]:
        """Return whose split a key names, its name, and the folders that it is looked for in; none for the Hub."""
        definition, folders = self.definition, [] if self.data is None else [self.data]
        if key == TRAIN and definition.task.train is not None:
            key = definition.task.train
        other, colon, split = key.rpartition(":")
        if colon:
            definition = tasks.DEFINITIONS[other]
        elif self.beside is not None:
            whole = [name for name in definition.split_names if name not in definition.parts]
            on_hub = all(map(definition.on_hub, whole))
            has_files = any(definition.files.get(name) for name in whole)
            folders = [] if on_hub and not (has_files and folders) else [self.beside, *folders]
        if split not in (known := definition.split_names):
            raise CorpusError(f"{definition.task.title} has no split '{split}'.{suggestion(split, known)}")
        return definition, split, folders


def _find_split(definition: TaskDefinition, split: str, folders: Sequence[Path]) -> tuple[Path, FileSource]:
    """Return the file of a split, and its layout."""
    return _find(definition.paths(split), folders, f"the split '{split}' of {definition.task.title}")


def _find(names: Sequence[tuple[str, FileSource]], folders: Sequence[Path], what: str) -> tuple[Path, FileSource]:
    found = find_file(names, folders)
    if found is None:
        wanted = ", ".join(f"{name} (one only)" if "*" in name else name for name, _ in names)
        where = " and ".join(f"'{folder}'" for folder in folders)
        raise CorpusError(f"No file of {what} in {where} or a subfolder: looked for {wanted}.")
    return found


def _read_texts(
    definition: TaskDefinition, key: str, wanted: TextFile, folders: Sequence[Path], report: SourceReport
) -> dict[str, str]:
    """Read the texts of queries or documents, by their ids."""
    path, source = _find(definition.paths_of_texts(wanted), folders, f"the {key} of {definition.task.title}")
    texts: dict[str, str] = {}
    for row in read_split_file(path, source, report):
        for column in (wanted.id, *wanted.text[-1:]):
            _require(row, column)
        parts = (_text(row, column).strip() for column in wanted.text if row.values.get(column) is not None)
        texts[str(row.values[wanted.id])] = " ".join(filter(None, parts))
    return texts


def _put_texts(rows: Sequence[TaskRow], texts: Mapping[str, Mapping[str, str]], origin: str) -> list[TaskRow]:
    """Put texts in the places of their ids, and add the documents that no row names.

    Raises:
        CorpusError: for an id of no text, or an empty query.
    """

    def text_of(key: str, named: str) -> str:
        found = texts[key].get(named) if key in texts and named else named
        # A document may be empty, a query not.
        if found is None or (key == "queries" and named and not found):
            raise CorpusError(f"{origin} names '{named[:80]}', for which the file of {key} has no text.")
        return found

    if not texts:
        return list(rows)
    found = []
    for row in rows:
        query, document = row.text, row.pair or ""
        ids = (query if query and "queries" in texts else "", document if "documents" in texts else "")
        found.append(replace(row, text=text_of("queries", query), pair=text_of("documents", document), ids=ids))
    known = {row.keys[1] for row in found}
    others = ((own, text) for own, text in texts.get("documents", {}).items() if own not in known)
    return found + [TaskRow(own, "", text, 0.0, ids=("", own)) for own, text in others]


def _what_is_there(places: Splits, *, training: bool) -> tuple[list[str], list[str]]:
    """Return the keys of the splits that are there, and of those that are not."""
    definition = places.definition
    task = definition.task
    scored: Collection[str] = task.scored
    if not any(map(places.has, scored)):
        scored = [key for key in definition.second_choice if places.has(key)] or scored
    trained = (task.train and TRAIN, task.select) if training else ()
    keys = list(filter(None, dict.fromkeys((*trained, *scored, *task.predicted))))
    there = [key for key in keys if places.has(key)]
    if not there:
        if definition.second_choice and KINDS[task.kind].of_vectors and places.data is not None:
            names = [name for key in (*keys, *definition.second_choice) for name in definition.paths(key)]
            _find(names, [places.data], f"the splits of {task.title}")
        places.read(keys[0], {})  # Raises, naming the files that it looked for.
    return there, [key for key in keys if key not in there]


def _narrowed(definition: TaskDefinition, rows: Mapping[str, object]) -> Task:
    """The task with the scored and predicted splits that were loaded."""
    task = definition.task
    first = [key for key in task.scored if key in rows] or [key for key in definition.second_choice if key in rows]
    # Other splits named in the request are scored too, such as MLQA's pairs of two languages.
    labelled = [key for key in rows if key in task.splits and task.splits[key].labelled]
    more = [key for key in labelled if key not in (TRAIN, task.select, *first)]
    predicted = tuple(key for key in task.predicted if key in rows)
    return replace(task, scored=(*first, *more), predicted=predicted)
