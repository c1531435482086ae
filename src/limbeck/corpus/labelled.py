"""Labelled rows: checked examples of them, the numbers of their classes, and the tokens of single texts and pairs."""

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from limbeck.corpus.documents import SourceReport, clean_text
from limbeck.corpus.readers import PlacedRow, list_columns
from limbeck.corpus.settings import LabelledSettings
from limbeck.errors import CorpusError


class ClassNumbers:
    """Finds the number of a class by its name, in any case, or by the number itself.

    A data set that states names for its own numbers (parquet files and Hub data sets may) is understood by the names
    when the teacher has all of them: the two may number the classes differently.

    Args:
        labels: Class names in the order of their numbers.

    Raises:
        CorpusError: if there are no names.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        if not labels:
            raise CorpusError("Classification has no class names: give labels, in the order of the teacher's id2label.")
        self._labels = tuple(labels)
        folded = [label.casefold() for label in labels]
        self._numbers = {name: folded.index(name) for name in folded if folded.count(name) == 1}
        self._numbers |= {label: number for number, label in enumerate(labels)}
        # Where names are numbers ("1" to "5" stars), a number is a name: 1 must not be taken for the second class.
        if not any(label.strip().isdecimal() for label in labels):
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
        raise CorpusError(
            f"{where} has the label {value!r}, which is none of the teacher's classes ({known}) nor a number from 0 to "
            f"{len(self._labels) - 1}."
        )

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


class Example(NamedTuple):
    """One labelled row.

    Args:
        text: The text, or the context.
        pair: The second text, or the question; `None` for tasks on single texts.
        label: Number of the class, value, or the answer's characters in `text` (first, after last); see `NO_ANSWER`.
    """

    text: str
    pair: str | None
    label: int | float | tuple[int, int]


ExampleReader: TypeAlias = Callable[[PlacedRow, SourceReport], Example | None]


def example_reader(settings: LabelledSettings) -> ExampleReader:
    """Return the function that reads an example from a row; it gives `None` for a row that it passes over and notes.

    Args:
        settings: Task, columns and class names.

    Raises:
        CorpusError: if class names are needed and missing; and by the function, if a row lacks a column or is
            unlabelled, or its label is none of the task's.
    """
    numbers = ClassNumbers(settings.labels) if settings.task == "classification" else None
    is_question = settings.task == "question_answering"
    column = settings.answers_column if is_question else settings.label_column
    text_columns = [name for name in (settings.text_column, settings.pair_column) if name is not None]

    def read(row: PlacedRow, report: SourceReport) -> Example | None:
        _check_columns(row, settings.columns)
        value = row.values[column]
        # GLUE's test files, as the Hub has them, are labelled -1.
        if is_missing(value) or (numbers is not None and value in (-1, "-1") and value not in numbers):
            raise CorpusError(
                f"{row.where} is unlabelled (its {column} is {value!r}): give rows with labels, or leave out the task "
                f"to distil on the text alone."
            )
        if is_question:
            return _read_question(row, settings, report)
        if numbers is None:
            label: int | float = parse_value(value, row.where)
        else:
            label = numbers.number(value, row.where, row.class_names.get(column, ()))
        text, pair = [*(_text(row, name, report) for name in text_columns), None][:2]
        return None if text is None or (len(text_columns) > 1 and pair is None) else Example(text, pair, label)

    return read


def _check_columns(row: PlacedRow, columns: Mapping[str, str]) -> None:
    for column, setting in columns.items():
        if column not in row.values:
            # The first row of a table without a header may be whole texts.
            names = [str(name)[:_SHOWN_CHARACTERS] for name in row.values]
            raise CorpusError(
                f"{row.where} has no column '{column}': set {setting} to one of {list_columns(names)}, or leave out "
                f"that source."
            )


def _read_question(row: PlacedRow, settings: LabelledSettings, report: SourceReport) -> Example | None:
    context = row.values[settings.context_column]
    question = _text(row, settings.question_column, report)
    if not isinstance(context, str) or not context.strip():
        report.note("row with an empty context", row.where)
        return None
    if question is None:
        return None
    label = NO_ANSWER
    answer = None if row.values.get("is_impossible") else _first_answer(row.values[settings.answers_column], row.where)
    if answer is not None:
        text, start = answer
        label = (start, start + len(text))
        if start < 0 or not text or context[start : label[1]] != text:
            report.note("answer that is not at its answer_start, dropped", row.where)
            return None
    # Characters are only replaced one by one: the answer's place must stay.
    return Example(_LONE_SURROGATE.sub("\ufffd", context), question, label)


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
            f"The answers of {where} are not as SQuAD has them: a text and an answer_start for each."
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
                f"length is {length}, but this tokenizer puts {special} special tokens in a row: too short."
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
