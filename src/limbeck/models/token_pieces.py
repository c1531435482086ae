"""The pieces of a token's text: how a source's tokenizer cuts the tokens of a student's own vocabulary.

A student with a vocabulary of its own has no rows to copy from its *source*, the model that it starts from. The row of
each of its tokens starts as the mean of the source's rows of the pieces of the token's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch
from tokenizers import models
from torch import Tensor, nn

from limbeck.models.wordpieces import CONTINUATION

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Pieces: TypeAlias = Sequence[Sequence[int]]
"""For each token of a student, by its id, the ids of the source's tokens of its text; none where there are none."""

_ROLES = (("pad",), ("unk",), ("cls", "bos"), ("sep", "eos"), ("mask",))
"""Roles of special tokens; of two names of one role, a tokenizer may have either."""


def pieces_of_tokens(student: PreTrainedTokenizerBase, source: PreTrainedTokenizerBase) -> Pieces:
    """Cut the text of each token of a student by the tokenizer of its source.

    A special token has the source's token of the same role. A token that both vocabularies have in the same form, such
    as `##ing`, is that token alone. The text of any other token stands at the beginning of a word, or inside of one for
    a source that tells the two apart by spaces.

    Args:
        student: The student's tokenizer, of WordPieces.
        source: The source's, of any kind.
    """
    tokens = student.convert_ids_to_tokens(list(range(len(student))))
    texts = [_text_of(token) for token in tokens]
    pieces: list[list[int]] = source(texts, add_special_tokens=False, verbose=False)["input_ids"]

    # A WordPiece source marks pieces inside of words as the student does. In other vocabularies a token of the same
    # form may mean another text.
    backend = getattr(source, "backend_tokenizer", None)
    if backend is not None and isinstance(backend.model, models.WordPiece):
        ids_in_source = source.get_vocab()
        for index, token in enumerate(tokens):
            if token in ids_in_source:
                pieces[index] = [ids_in_source[token]]

    # Of the names of one role, such as "cls" and "bos", a tokenizer has either.
    for names in _ROLES:
        student_id = _special_id(student, names)
        source_id = _special_id(source, names)
        if student_id is not None:
            pieces[student_id] = [] if source_id is None else [source_id]
    return pieces


def mean_rows(table: Tensor, pieces: Pieces) -> Tensor:
    """The mean of the rows of each token's pieces, `[tokens, width]`; of the whole table for a token without any.

    Args:
        table: The source's word embeddings, `[words, width]`.
        pieces: The pieces of each token.
    """
    counts = torch.tensor([len(ids) for ids in pieces])
    first = counts.cumsum(0) - counts
    all_ids = torch.tensor([source_id for ids in pieces for source_id in ids], dtype=torch.int64)
    means = nn.functional.embedding_bag(all_ids, table, first, mode="mean")
    return torch.where((counts > 0)[:, None], means, table.mean(0))


def _text_of(token: str) -> str:
    """The text of a WordPiece; with a space before it where it begins a word."""
    if token.startswith(CONTINUATION):
        return token.removeprefix(CONTINUATION)
    return f" {token}"


def _special_id(tokenizer: PreTrainedTokenizerBase, names: Sequence[str]) -> int | None:
    """The id of a special token by the first of its names that a tokenizer has; None without any."""
    for name in names:
        token_id: int | None = getattr(tokenizer, f"{name}_token_id", None)
        if token_id is not None:
            return token_id
    return None
