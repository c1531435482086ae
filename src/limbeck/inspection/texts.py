"""The texts of an inspection, and their token ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from limbeck.core.yaml import read_document
from limbeck.corpus.files.small_files import read_texts as read_all_texts
from limbeck.errors import CorpusError
from limbeck.models import tokenizers

_FILE = Path(__file__).with_name("sentences.yaml")
SENTENCES: tuple[str, ...] = tuple(read_document(_FILE, f"'{_FILE}'", "install limbeck again."))
"""The sentences that models are inspected on if the user gives no texts."""


def read_texts(path: Path | str | None, limit: int) -> tuple[str, ...]:
    """Read texts, one a line; blank lines are skipped.

    Args:
        path: A UTF-8 file, or None for `SENTENCES`.
        limit: Most texts; of more texts, as many are taken at equal distances over the file.

    Raises:
        CorpusError: if the file cannot be read, or holds no text.
    """
    texts = list(SENTENCES) if path is None else read_all_texts(Path(path))
    count = min(limit, len(texts))
    return tuple(texts[index * len(texts) // count] for index in range(count))


class TokenRows(NamedTuple):
    """Texts as token ids.

    Args:
        ids: One row a text, special tokens included.
        cut: Number of texts that were cut to the limit.
    """

    ids: list[list[int]]
    cut: int


def tokenise(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], limits: Sequence[int | None]) -> TokenRows:
    """Turn texts into rows of token ids, special tokens included; texts without a token are left out.

    Args:
        tokenizer: The tokenizer; its settings are not changed.
        texts: The texts.
        limits: The limits of a row in tokens, that of the user and those of the models; the lowest applies. None is no
            limit, but at least one must be a number.

    Raises:
        CorpusError: if no text has a token.
    """
    lowest_limit = min(limit for limit in limits if limit is not None)
    # The texts are encoded twice: only the uncut rows show which ones are cut.
    whole_rows: list[list[int]] = tokenizers.encode_texts(tokenizer, texts)["input_ids"]
    cut_rows = tokenizers.encode_texts(tokenizer, texts, truncation=True, max_length=lowest_limit)["input_ids"]
    filled_rows = [row for row in cut_rows if row]
    if not filled_rows:
        raise CorpusError("The texts hold no tokens; give a file with one sentence or paragraph per line.")
    cut = sum(len(row) > lowest_limit for row in whole_rows)
    return TokenRows(filled_rows, cut)
