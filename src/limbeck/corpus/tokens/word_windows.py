"""`WordEncoder`: sentences of tagged words as token rows, with the word of each token.

A sentence that is longer than a row becomes several *windows*, rows with some of its words each.
"""

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from limbeck.core import IGNORED_LABEL
from limbeck.corpus.rows.labelled_rows import WORD_GAP, LabelledRow
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES, EncodedRows
from limbeck.errors import CorpusError

NO_WORD = -1
"""Place of a token that is not the first of a word."""
_UNKNOWN_TAG = 0
"""Class of the words of a sentence without labels; only its place counts, and no loss reads it."""
_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""


class WordWindow(NamedTuple):
    """A sentence, or a part of one that is longer than a window.

    Args:
        sentence: Its number among the sentences that were encoded.
        input_ids: Ids, special tokens included.
        token_type_ids: Segment of each token; None where the model has no segments.
        words: For the first token of each word, the index of the word in the sentence; for other tokens `NO_WORD`.
    """

    sentence: int
    input_ids: list[int]
    token_type_ids: list[int] | None
    words: list[int]


class _Part(NamedTuple):
    """Words of a sentence that fit into one window.

    Args:
        sentence: Number of the sentence.
        start: Number of the first word in the sentence.
        words: The words.
    """

    sentence: int
    start: int
    words: list[str]


class WordEncoder:
    """Encodes sentences of tagged words; the first token of a word has its class, all others -100.

    Each word is encoded by itself, as `transformers` encodes a text that is split into words. A sentence that is longer
    than a window is cut between words. Only a word that is longer than a window is cut itself.

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
                "Token classification needs the word of every token, which the slow tokenizer "
                f"{type(tokenizer).__name__} does not provide: use a fast tokenizer (one with a tokenizer.json)."
            )
        self._tokenizer = copy.deepcopy(tokenizer)  # A call changes the truncation of the tokenizer.
        pre_tokenizer = self._tokenizer.backend_tokenizer.pre_tokenizer
        if hasattr(pre_tokenizer, "add_prefix_space"):  # Byte-level BPE encodes a word with the space in front of it.
            pre_tokenizer.add_prefix_space = True
            self._tokenizer.add_prefix_space = True
        special_tokens = tokenizer.num_special_tokens_to_add(pair=False)
        if length <= special_tokens:
            raise CorpusError(
                f"length is {length}, which is too short: this tokenizer puts {special_tokens} special tokens in a "
                "row; give a larger 'length'."
            )
        self._length = length
        self._room = length - special_tokens
        self._has_types = TOKEN_TYPES in tokenizer.model_input_names

    def windows(self, texts: Sequence[str], report: SourceReport) -> list[WordWindow]:
        """Return the windows of sentences, in order.

        Args:
            texts: The words of each sentence, with `WORD_GAP` between them.
            report: Receives sentences and words that were cut, and words without a token.
        """
        sentences = [text.split(WORD_GAP) for text in texts]
        sizes_of_sentences = self._token_counts(sentences)
        parts: list[_Part] = []
        for number, (words, sizes) in enumerate(zip(sentences, sizes_of_sentences, strict=True)):
            parts += self._cut(number, words, sizes, report)

        encoded = self._encode([part.words for part in parts], max_length=self._length, truncation=True)
        windows = []
        for index, part in enumerate(parts):
            types = encoded[TOKEN_TYPES][index] if self._has_types else None
            first_words = _first_words(encoded.word_ids(index), part.start)
            windows.append(WordWindow(part.sentence, encoded["input_ids"][index], types, first_words))
        return windows

    def encode(self, rows: Sequence[LabelledRow], report: SourceReport) -> EncodedRows:
        """Return the windows of each row with a label for each token; see `windows`.

        Words of a row without labels get a class that stands for none: it marks the tokens that are scored.
        """
        # The class of each word of each row.
        tags: list[Any] = []
        for row in rows:
            if row.label is not None:
                tags.append(row.label)
                continue
            word_count = row.text.count(WORD_GAP) + 1
            tags.append((_UNKNOWN_TAG,) * word_count)
        encoded = EncodedRows([], [], [] if self._has_types else None)
        # A window has for each token the word that begins there. Only the first token of a word is scored.
        for window in self.windows([row.text for row in rows], report):
            word_tags = tags[window.sentence]
            labels = [IGNORED_LABEL if word == NO_WORD else word_tags[word] for word in window.words]
            encoded.input_ids.append(window.input_ids)
            encoded.labels.append(labels)
            if encoded.token_type_ids is not None:
                encoded.token_type_ids.append(window.token_type_ids or [])
        return encoded

    def _cut(self, number: int, words: list[str], sizes: Sequence[int], report: SourceReport) -> list[_Part]:
        """Cut a sentence between words into parts that fit into a window.

        Args:
            number: Number of the sentence.
            words: Its words.
            sizes: Number of tokens of each word.
            report: Receives what was cut.
        """
        shown = repr(" ".join(words)[:_SHOWN_CHARACTERS])
        report.note(
            "word without a token: not trained on, scored as O or as the first class",
            shown,
            sizes.count(0),
        )
        report.note("word longer than a window, cut", shown, sum(size > self._room for size in sizes))
        parts = []
        start = 0  # Index of the first word of the part that is being filled.
        room = self._room  # Tokens that still fit into this part.
        for place, size in enumerate(sizes):
            is_full = size > room and place > start
            if is_full:
                parts.append(_Part(number, start, words[start:place]))
                start = place
                room = self._room
            room -= size
        was_cut = start > 0
        if was_cut:
            report.note(f"sentence cut into windows of {self._length} tokens", shown)
        parts.append(_Part(number, start, words[start:]))
        return parts

    def _token_counts(self, sentences: list[list[str]]) -> Iterator[list[int]]:
        """Yield the number of tokens of each word of each sentence."""
        encoded = self._encode(sentences, add_special_tokens=False)
        for number, words in enumerate(sentences):
            counts = Counter(encoded.word_ids(number))
            yield [counts[place] for place in range(len(words))]

    def _encode(self, words: list[list[str]], **options: Any) -> Any:
        """Tokenise texts that are cut into words already."""
        return self._tokenizer(
            words,
            is_split_into_words=True,
            padding=False,
            return_token_type_ids=self._has_types,
            verbose=False,
            **options,
        )


def _first_words(word_ids: Sequence[int | None], start: int) -> list[int]:
    """Return for the first token of each word its index in the sentence, and for other tokens `NO_WORD`.

    Args:
        word_ids: For each token the index of its word in the window; None for special tokens.
        start: Index of the window's first word in the sentence.
    """
    words: list[int] = []
    previous = None
    for word in word_ids:
        if word is None or word == previous:
            words.append(NO_WORD)
        else:
            words.append(start + word)
        previous = word
    return words
