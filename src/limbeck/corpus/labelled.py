"""Labelled rows: checked examples of them, the numbers of their classes, and the tokens of single texts and pairs."""

import copy
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeAlias

from limbeck.core import IGNORED_LABEL
from limbeck.core.blocks import counted
from limbeck.core.kinds import KINDS
from limbeck.corpus.documents import clean_text
from limbeck.corpus.file_kinds import PlacedRow
from limbeck.corpus.messages import list_columns
from limbeck.corpus.settings import LabelledSettings
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tables import TABLES, headless
from limbeck.corpus.tags import check_tags, inconsistencies, marks_entities
from limbeck.errors import CorpusError

TEACHERS_CLASSES = "the teacher's classes"


class ClassNumbers:
    """Finds the number of a class by its name, in any case, or by the number itself.

    A data set that states names for its own numbers (parquet files and Hub data sets may) is understood by the names
    when the teacher has all of them: the two may number the classes differently.

    Args:
        labels: Class names in the order of their numbers.
        owner: Whose they are, for messages.

    Raises:
        CorpusError: if there are no names.
    """

    def __init__(self, labels: Sequence[str], owner: str = TEACHERS_CLASSES) -> None:
        self._owner = owner
        if not labels:
            raise CorpusError("Classification has no class names: give labels, in the order of the teacher's id2label.")
        self._labels = tuple(labels)
        folded = [label.casefold() for label in labels]
        self._numbers = {name: folded.index(name) for name in folded if folded.count(name) == 1}
        self._numbers |= {label: number for number, label in enumerate(labels)}
        # Where names are or begin with numbers ("1 star" to "5 stars"), 1 must not be taken for the second class.
        numbered = [re.match(r"\s*[+-]?\d+", label) for label in labels]
        if all(found is None or int(found[0]) == number for number, found in enumerate(numbered)):
            self._numbers |= {str(number): number for number in range(len(labels))}

    def number(self, value: Any, where: str, names: Sequence[str] = ()) -> int:
        """Return the number of the class that a row is labelled with.

        Args:
            value: Name or number, as read.
            where: Where the row stands.
            names: Names that the data set has for its numbers.

        Raises:
            CorpusError: if it is neither.
        """
        if isinstance(value, int) and 0 <= value < len(names) and self._knows(names):
            value = names[value]
        for spelling in _spellings(value):
            if spelling in self._numbers:
                return self._numbers[spelling]
        known = ", ".join(self._labels[:20]) + (", …" if len(self._labels) > 20 else "")
        way_out = "."
        if self._owner == TEACHERS_CLASSES and not re.fullmatch(r"[+-]?[\d.]+", str(value).strip()):
            way_out = f": correct the label, or rename the classes (teacher.classes: {{{self._labels[0]}: …}})."
        raise CorpusError(
            f"{where} has the label {value!r}, which is not one of {self._owner} ({known}) or a number from 0 to "
            f"{len(self._labels) - 1}{way_out}"
        )

    def flags(self, value: Any, where: str, names: Sequence[str] = ()) -> tuple[int, ...]:
        """Return for each class 1 where a row that may have several is labelled with it, else 0.

        Args:
            value: Names or numbers in a list, or in text between `|`, `;` or `,`; none of them where it has no class.
            where: Where the row stands.
            names: Names that the data set has for its numbers.

        Raises:
            CorpusError: if one of them is no class, or one comes twice.
        """
        parts = self._parts(value) if isinstance(value, str) else value
        found = [self.number(part, where, names) for part in (parts if isinstance(parts, Sequence) else [parts])]
        if len(set(found)) < len(found):
            raise CorpusError(
                f"{where} has the label {value!r}, which names a class twice: name each once, or give a column of "
                "0 and 1 for each class (label_columns)."
            )
        return self._flags(found)

    def flags_of(self, values: Mapping[str, Any], where: str) -> tuple[int, ...]:
        """Return the same of a row with a column of 0 and 1 for each class.

        Args:
            values: The columns that are named after the classes; where the classes have no names but those that
                `transformers` makes up (`LABEL_0`), all columns in their order.
            where: Where the row stands.

        Raises:
            CorpusError: if the columns are not those of the classes, or one holds something else.
        """
        unnamed = all(label == f"LABEL_{number}" for number, label in enumerate(self._labels))
        if unnamed and len(values) == len(self._labels):
            columns = dict(zip(values, range(len(values)), strict=True))
        else:
            columns = {name: self.number(name, f"label_columns of {where}") for name in values}
        if len(set(columns.values())) < len(self._labels):
            missing = [label for number, label in enumerate(self._labels) if number not in columns.values()]
            raise CorpusError(
                f"label_columns has no column for the class '{(missing or self._labels)[0]}': give every class "
                "a column."
            )
        return self._flags([columns[name] for name, value in values.items() if _is_set(value, f"{where}, '{name}',")])

    def _flags(self, found: Sequence[int]) -> tuple[int, ...]:
        return tuple(int(number in found) for number in range(len(self._labels)))

    def _parts(self, text: str) -> list[str]:
        if text in self:
            return [text]
        bare = text.strip()
        if bare[:1] + bare[-1:] == "[]":  # A list that was written into a table.
            bare = bare[1:-1]
        mark = next((mark for mark in "|;," if mark in bare), ",")
        return [name for part in bare.split(mark) if (name := part.strip(" '\""))]

    def __contains__(self, value: Any) -> bool:
        return str(value).strip() in self._labels

    def _knows(self, names: Sequence[str]) -> bool:
        return all(name in self._numbers or name.casefold() in self._numbers for name in names)


def parse_value(value: Any, where: str) -> float:
    """Return the value that a row is labelled with.

    Args:
        value: A number, or text that spells one.
        where: Where the row stands.

    Raises:
        CorpusError: if it is not a finite number.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise CorpusError(f"{where} has the label {value!r}, which is not a finite number.")
    return number


def _is_set(value: Any, where: str) -> bool:
    flag = float(value) if isinstance(value, bool) else parse_value(value, where)
    if flag not in (0, 1):
        raise CorpusError(f"{where} has the label {value!r}: give 1 where the row has the class, else 0.")
    return flag == 1


def is_missing(value: Any) -> bool:
    """Whether a label is none: null, empty text, or the NaN of a table."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _spellings(value: Any) -> Iterator[str]:
    text = str(value).strip()
    yield text
    yield text.casefold()
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return
    if number.is_integer():  # True, 1.0 and "1.0" are all 1.
        yield str(int(number))


NO_ANSWER = (-1, -1)
"""Label of a question that its context does not answer."""

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SHOWN_CHARACTERS = 40


def without_surrogates(text: str) -> str:
    """Return a text with U+FFFD for lone surrogates, which no file can hold; every character keeps its place."""
    return _LONE_SURROGATE.sub("\ufffd", text)


class Example(NamedTuple):
    """One labelled row.

    Args:
        text: The text, or the context.
        pair: The second text, the question, or the document of a query; `None` for tasks on single texts.
        label: Number of the class, value, 1 or 0 for each class where a row may have several, relevance of a document
            (NaN where none is known), the answer's characters in `text` (first, after last; see `NO_ANSWER`), or the
            number of each word's class.
    """

    text: str
    pair: str | None
    label: int | float | tuple[int, ...]


WORD_GAP = "\t"
"""Between the words of a tagged sentence's text: some languages write words with spaces in them."""


ExampleReader: TypeAlias = Callable[[PlacedRow, SourceReport], Sequence[Example]]


def example_reader(settings: LabelledSettings) -> ExampleReader:
    """Return the function that reads a row; it gives no example of a row that it passes over and notes.

    A row is one example; of a ranking, one for each document of its query.

    Args:
        settings: Task, columns and class names.

    Raises:
        CorpusError: if class names are needed and missing; and by the function, if a row lacks a column or is
            unlabelled, or its label is none of the task's.
    """
    kind = KINDS[settings.task]
    if kind.of_words:
        read_sentence = SentenceReader(settings.labels, settings.tokens_column, settings.tags_column)

        def read_tagged(row: PlacedRow, report: SourceReport) -> Sequence[Example]:
            _check_columns(row, settings.named_columns)
            sentence = read_sentence(row, report)
            return [] if sentence is None else [sentence]

        return read_tagged
    numbers = ClassNumbers(settings.labels) if kind.has_classes else None
    is_question = kind.has_answers
    column = settings.answers_column if is_question else settings.label_column
    text_columns = [name for name in (settings.text_column, settings.pair_column) if name is not None]

    def read(row: PlacedRow, report: SourceReport) -> Sequence[Example]:
        _check_columns(row, settings.named_columns)
        if kind.has_queries:
            return _read_query(row, settings, report)
        value = row.values.get(column)
        several = read_several(row, numbers, column, settings.label_columns) if numbers and kind.has_several else None
        # GLUE's test files, as the Hub has them, are labelled -1.
        if several is None and (
            is_missing(value) or (numbers is not None and value in (-1, "-1") and value not in numbers)
        ):
            raise CorpusError(
                f"{row.where} is unlabelled (its {column} is {value!r}): give rows with labels, or leave out the task "
                f"to distil on the text alone."
            )
        if is_question:
            return _read_question(row, settings, report)
        label: int | float | tuple[int, ...]
        if several is not None:
            label = several
        elif numbers is None:
            label = parse_value(value, row.where)
        else:
            label = numbers.number(value, row.where, row.class_names.get(column, ()))
        text, pair = [*(_text(row, name, report) for name in text_columns), None][:2]
        return [] if text is None or (len(text_columns) > 1 and pair is None) else [Example(text, pair, label)]

    return read


def read_several(row: PlacedRow, numbers: ClassNumbers, column: str, columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return for each class 1 where a row has it, else 0; None for a row whose label is null.

    Args:
        row: The row.
        numbers: Finds the numbers of classes.
        column: Column of the classes.
        columns: Columns of 0 and 1, one a class, in place of that one; empty where there are none.

    Raises:
        CorpusError: if the label is none of the classes'.
    """
    if columns:
        return numbers.flags_of({name: row.values[name] for name in columns}, row.where)
    value = row.values[column]
    if not isinstance(value, str) and is_missing(value):  # Empty text is a row without a class.
        return None
    return numbers.flags(value, row.where, row.class_names.get(column, ()))


class SentenceReader:
    """Reads sentences of tagged words.

    Args:
        labels: Class names in the order of their numbers.
        tokens: Column of the words.
        tags: Column of their classes; `None` where they have none.
        owner: Whose classes they are, for messages.

    Raises:
        CorpusError: if there are no names, or one of an entity names no type.
    """

    def __init__(
        self, labels: Sequence[str], tokens: str, tags: str | None, owner: str = "the teacher's classes"
    ) -> None:
        self._numbers, self._labels = ClassNumbers(labels, owner), labels
        self._tokens, self._tags = tokens, tags
        check_tags(labels)
        self._entities = marks_entities(labels)

    def __call__(self, row: PlacedRow, report: SourceReport) -> Example | None:
        """Return a sentence and the number of each word's class; `None` for one without words.

        Args:
            row: Has the columns.
            report: Receives sentences without words, and tags that contradict their scheme.

        Raises:
            CorpusError: if there is no list of words, or not one of the classes for each.
        """
        words = row.values[self._tokens]
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            shown = repr(words)[:_SHOWN_CHARACTERS]
            raise CorpusError(f"{row.where} has no list of words in its column '{self._tokens}', but {shown}.")
        cleaned = [" ".join(clean_text(word).split()) for word in words]
        tags = () if self._tags is None else self._numbers_of(row, row.values[self._tags], len(words), report)
        if not any(cleaned):
            report.note("sentence without words, left out", row.where)
            return None
        return Example(WORD_GAP.join(cleaned), None, tags)

    def _numbers_of(self, row: PlacedRow, tags: Any, count: int, report: SourceReport) -> tuple[int, ...]:
        if not isinstance(tags, list | tuple) or len(tags) != count:
            given = (
                f"{len(tags)} tag{'s' * (len(tags) != 1)}"
                if isinstance(tags, list | tuple)
                else f"the tags {tags!r}"[:_SHOWN_CHARACTERS]
            )
            raise CorpusError(f"{row.where} has {count} word{'s' * (count != 1)}, but {given}: give each word its own.")
        for place, tag in enumerate(tags, start=1):
            if is_missing(tag) or (tag in (-1, "-1", IGNORED_LABEL) and tag not in self._numbers):
                raise CorpusError(f"{row.where} is unlabelled: the tag of its word {place} is {tag!r}.")
        names = row.class_names.get(self._tags or "", ())
        found = tuple(self._numbers.number(tag, row.where, names) for tag in tags)
        if self._entities:
            for problem, tags_there in inconsistencies([self._labels[number] for number in found], self._labels):
                report.note(problem, f"{row.where}, {tags_there}")
        return found


def _check_columns(row: PlacedRow, columns: Mapping[str, str]) -> None:
    for column, setting in columns.items():
        if column not in row.values:
            if problem := headless(row):
                raise CorpusError(
                    f"{problem}; name its {len(row.values)} fields by corpus.task.columns, in their order and with "
                    f"'{column}' among them, or leave this source out."
                )
            # The first row of a table without a header may be whole texts.
            names = [str(name)[:_SHOWN_CHARACTERS] for name in row.values]
            is_table = PurePosixPath(row.where.rpartition(":")[0]).suffix in TABLES
            or_named = ", name the fields by corpus.task.columns if the file has no header" if is_table else ""
            raise CorpusError(
                f"{row.where} has no column '{column}': set {setting} to one of {list_columns(names)}{or_named}, "
                "or leave this source out."
            )


def _read_question(row: PlacedRow, settings: LabelledSettings, report: SourceReport) -> Sequence[Example]:
    context = row.values[settings.context_column]
    question = _text(row, settings.question_column, report)
    if not isinstance(context, str) or not context.strip():
        report.note("row with an empty context", row.where)
        return []
    if question is None:
        return []
    label = NO_ANSWER
    answer = None if row.values.get("is_impossible") else _first_answer(row.values[settings.answers_column], row.where)
    if answer is not None:
        text, start = answer
        label = (start, start + len(text))
        if start < 0 or not text or context[start : label[1]] != text:
            report.note("answer that is not at its answer_start, dropped", row.where)
            return []
    # Characters are only replaced one by one: the answer's place must stay.
    return [Example(without_surrogates(context), question, label)]


def _read_query(row: PlacedRow, settings: LabelledSettings, report: SourceReport) -> Sequence[Example]:
    query, found = _text(row, settings.query_column, report), []
    for text, label in documents_of(row, settings.document_columns, settings.label_column):
        document = clean_text(text)
        if not document:
            report.note("document that is empty", row.where)
        elif query is not None:
            found.append(Example(query, document, math.nan if label is None else label))
    if query is not None and not found:
        report.note("query without a document", row.where)
    return found


def documents_of(row: PlacedRow, columns: Sequence[str], label_column: str) -> list[tuple[str, float | None]]:
    """Return a query's documents, with the relevance of each as far as the row says it.

    Args:
        row: Of a ranking data set.
        columns: Columns of the documents, each a text or a list of texts. Of several, the first holds the relevant
            ones: their relevance is 1, that of all others 0.
        label_column: Column of the relevance, a number or as many as documents; a row may lack it. It goes before what
            columns say.

    Raises:
        CorpusError: if a document is no text, or the labels are not as many as documents, or below 0.
    """
    found: list[tuple[str, float | None]] = []
    for place, column in enumerate(columns):
        value: Any = row.values[column]
        texts = value if isinstance(value, list | tuple) else [value] if value is not None else []
        for text in texts:
            if not isinstance(text, str):
                raise CorpusError(
                    f"{row.where} has a document that is not text in its column '{column}': {text!r:.40}."
                )
            found.append((text, float(place == 0) if len(columns) > 1 else None))
    given: Any = row.values.get(label_column)
    if is_missing(given):
        return found
    labels = list(given) if isinstance(given, list | tuple) else [given]
    if len(labels) != len(found):
        raise CorpusError(
            f"{row.where} has {counted(len(found), 'document')} and {counted(len(labels), 'label')} in its column "
            f"'{label_column}': give each document a label, in the same order."
        )
    values = [parse_value(label, row.where) for label in labels]
    if min(values, default=0) < 0:
        raise CorpusError(f"{row.where} has the label {min(values):g}, but a relevance is 0 or more.")
    return [(text, value) for (text, _), value in zip(found, values, strict=True)]


def _first_answer(answers: Any, where: str) -> tuple[str, int] | None:
    """Return text and start of the first answer; `None` if there is none.

    Args:
        answers: `{"text": [...], "answer_start": [...]}`, or a list of `{"text": ..., "answer_start": ...}`.
        where: Where the row stands.
    """
    try:
        if isinstance(answers, Mapping):
            pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in answers]
        if not pairs:
            return None
        text, start = pairs[0]
        if int(start) != float(start):
            raise ValueError(start)
        return str(text), int(start)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"The answers of {where} are not in the format of SQuAD: a text and an answer_start for each."
        ) from error


def _text(row: PlacedRow, column: str, report: SourceReport) -> str | None:
    value = row.values[column]
    if value is not None and not isinstance(value, str):
        report.note(f"column '{column}' that is not text", f"{row.where}, {type(value).__name__}")
        return None
    cleaned = clean_text(value or "")
    if not cleaned:
        report.note(f"row whose column '{column}' is empty", row.where)
    return cleaned or None


TOKEN_TYPES = "token_type_ids"


class EncodedRows(NamedTuple):
    """Rows of tokens, column by column.

    Args:
        input_ids: Ids of each row, special tokens included.
        labels: Label of each row.
        token_type_ids: Segment of each token of each row; `None` where the model has no segments.
    """

    input_ids: list[list[int]]
    labels: list[Any]
    token_type_ids: list[list[int]] | None


class SequenceEncoder:
    """Encodes single texts or pairs, cutting them to a length, the longer of a pair first.

    They are encoded as the tokenizer itself encodes them. Unlike in the blocks of a text corpus, text that spells a
    special token ("[SEP]") is encoded as the tokenizer is set to encode it, as in the teacher's fine-tuning.

    Args:
        tokenizer: A `transformers` tokenizer; it is not changed.
        length: Most tokens in a row, special tokens included.
        paired: Whether the rows are pairs.

    Raises:
        CorpusError: if no token of each text fits between the special ones.
    """

    def __init__(self, tokenizer: Any, length: int, paired: bool) -> None:
        self._tokenizer = copy.deepcopy(tokenizer)  # Every call sets its truncation.
        special = tokenizer.num_special_tokens_to_add(pair=paired)
        if length < special + (2 if paired else 1):
            raise CorpusError(
                f"length is {length}, which is too short: this tokenizer puts {special} special tokens in a row."
            )
        self._length = length
        self._room = length - special
        self._paired = paired
        self._typed = TOKEN_TYPES in tokenizer.model_input_names

    def encode(self, examples: Sequence[Example], report: SourceReport) -> EncodedRows:
        """Return ids and labels of each example, in order.

        Args:
            examples: The rows.
            report: Receives the rows that were cut.
        """
        ids, types, was_cut = (self._encode if self._tokenizer.is_fast else self._encode_slowly)(examples)
        for example, cut in zip(examples, was_cut, strict=True):
            if cut:
                report.note(f"row cut to {self._length} tokens", repr(example.text[:40]))
        return EncodedRows(ids, [example.label for example in examples], types if self._typed else None)

    def _encode(self, examples: Sequence[Example]) -> tuple[list[list[int]], list[list[int]], list[bool]]:
        """Return ids and segments of each example, and whether it was cut."""
        encoded = self._tokenizer(
            [example.text for example in examples],
            [example.pair for example in examples] if self._paired else None,
            padding=False,
            truncation="longest_first",
            max_length=self._length,
            return_attention_mask=False,
            return_token_type_ids=self._typed,
        )
        was_cut = [bool(encoding.overflowing) for encoding in encoded.encodings]
        return encoded["input_ids"], encoded[TOKEN_TYPES] if self._typed else [], was_cut

    def _encode_slowly(self, examples: Sequence[Example]) -> tuple[list[list[int]], list[list[int]], list[bool]]:
        """Do the same with a tokenizer in Python, which would log a warning for every pair that it cuts."""
        all_ids, all_types, was_cut = [], [], []
        for example in examples:
            texts = [example.text, example.pair or ""] if self._paired else [example.text]
            whole: list[list[int]] = self._tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
            kept = longest_first([len(ids) for ids in whole], self._room)
            left = self._tokenizer.truncation_side == "left"
            parts = [ids[len(ids) - n :] if left else ids[:n] for ids, n in zip(whole, kept, strict=True)]
            encoded = self._tokenizer.prepare_for_model(*parts, return_token_type_ids=True, verbose=False)
            all_ids.append(encoded["input_ids"])
            all_types.append(encoded[TOKEN_TYPES])
            was_cut.append(parts != whole)
        return all_ids, all_types, was_cut


def longest_first(lengths: Sequence[int], room: int) -> list[int]:
    """Return the tokens kept of one or two texts: the longer is cut until they fit, or are equal; then both.

    Args:
        lengths: Their lengths in tokens.
        room: Tokens that both may have together.
    """
    if sum(lengths) <= room:
        return list(lengths)
    if len(lengths) == 1:
        return [room]
    shorter = min(*lengths, room // 2)
    return [shorter, room - shorter] if lengths[0] <= lengths[1] else [room - shorter, shorter]


class WordWindow(NamedTuple):
    """A sentence, or a part of one that is longer than a window.

    Args:
        sentence: Its number among those that were given.
        input_ids: Ids, special tokens included.
        token_type_ids: Segment of each token; `None` where the model has no segments.
        words: Of each token the number of the word that it is the first of, from 0 in the sentence; else -1.
    """

    sentence: int
    input_ids: list[int]
    token_type_ids: list[int] | None
    words: list[int]


class WordEncoder:
    """Encodes sentences of tagged words; the first token of a word has its class, all others -100.

    Words are encoded each by itself, as `transformers` encodes a text that is split into words. A sentence that is
    longer than a window becomes several, cut between words; a word that is longer than a window alone is cut.

    Source: BERT (arXiv 1810.04805, section 5.3) for the first token of a word.

    Args:
        tokenizer: A fast `transformers` tokenizer; it is not changed.
        length: Most tokens in a row, special tokens included.

    Raises:
        CorpusError: if the tokenizer is slow, or no token fits between the special ones.
    """

    def __init__(self, tokenizer: Any, length: int) -> None:
        if not tokenizer.is_fast:
            raise CorpusError(
                f"Token classification needs the word of every token, which the slow tokenizer "
                f"{type(tokenizer).__name__} does not provide: use a fast one (a tokenizer.json)."
            )
        self._tokenizer = copy.deepcopy(tokenizer)  # Every call sets its truncation.
        before = self._tokenizer.backend_tokenizer.pre_tokenizer
        if hasattr(before, "add_prefix_space"):  # A word of byte-level BPE stands behind a space.
            before.add_prefix_space = True
            self._tokenizer.add_prefix_space = True
        special = tokenizer.num_special_tokens_to_add(pair=False)
        if length <= special:
            raise CorpusError(
                f"length is {length}, which is too short: this tokenizer puts {special} special tokens in a row."
            )
        self._length, self._room = length, length - special
        self._typed = TOKEN_TYPES in tokenizer.model_input_names

    def windows(self, texts: Sequence[str], report: SourceReport) -> list[WordWindow]:
        """Return the windows of sentences, in order.

        Args:
            texts: Their words, with `WORD_GAP` between them.
            report: Receives sentences and words that were cut, and words without a token.
        """
        parts: list[tuple[int, int, list[str]]] = []
        for number, (text, sizes) in enumerate(zip(texts, self._sizes(texts), strict=True)):
            words, start, room = text.split(WORD_GAP), 0, self._room
            shown = repr(" ".join(words)[:_SHOWN_CHARACTERS])
            report.note("word without a token, ignored", shown, sizes.count(0))
            report.note("word longer than a window, cut", shown, sum(size > self._room for size in sizes))
            for place, size in enumerate(sizes):
                if size > room and place > start:
                    parts.append((number, start, words[start:place]))
                    start, room = place, self._room
                room -= size
            if start:
                report.note(f"sentence cut into windows of {self._length} tokens", shown)
            parts.append((number, start, words[start:]))
        encoded = self._encode([words for *_, words in parts], max_length=self._length, truncation=True)
        types = encoded[TOKEN_TYPES] if self._typed else [None] * len(parts)
        return [
            WordWindow(number, ids, segments, [-1 if first is None else start + first for first in _firsts(of_tokens)])
            for (number, start, _), ids, segments, of_tokens in zip(
                parts, encoded["input_ids"], types, map(encoded.word_ids, range(len(parts))), strict=True
            )
        ]

    def encode(self, examples: Sequence[Example], report: SourceReport) -> EncodedRows:
        """Return the windows of each example with a label for each token; see `windows`."""
        found = self.windows([example.text for example in examples], report)
        tags: list[Any] = [example.label for example in examples]
        labels = [
            [IGNORED_LABEL if word < 0 else tags[window.sentence][word] for word in window.words] for window in found
        ]
        types = [window.token_type_ids or [] for window in found]
        return EncodedRows([window.input_ids for window in found], labels, types if self._typed else None)

    def _sizes(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Return the number of tokens of each word of each sentence."""
        split = [text.split(WORD_GAP) for text in texts]
        encoded = self._encode(split, add_special_tokens=False)
        for number, words in enumerate(split):
            counts = Counter(encoded.word_ids(number))
            yield [counts[place] for place in range(len(words))]

    def _encode(self, words: list[list[str]], **options: Any) -> Any:
        return self._tokenizer(
            words, is_split_into_words=True, padding=False, return_token_type_ids=self._typed, verbose=False, **options
        )


def _firsts(of_tokens: Sequence[int | None]) -> Iterator[int | None]:
    """Return of each token the word that it is the first of, or None."""
    before = None
    for word in of_tokens:
        yield None if word == before else word
        before = word
