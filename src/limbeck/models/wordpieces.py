"""A WordPiece tokenizer that is trained on text, and the configuration of a model that reads its tokens.

WordPiece (BERT, arXiv 1810.04805, section 3) cuts each word into the longest pieces that the vocabulary has. The pieces
are found by merging pairs of them, the most frequent first, as the `tokenizers` library does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from limbeck.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

_PAD = "[PAD]"
_UNKNOWN = "[UNK]"
_BEGINNING = "[CLS]"
_SEPARATOR = "[SEP]"
_MASK = "[MASK]"
_SPECIAL = (_PAD, _UNKNOWN, _BEGINNING, _SEPARATOR, _MASK)
"""The special tokens of BERT; the id of each is its index here."""
CONTINUATION = "##"
"""Beginning of a token that goes on with a word."""
_TOKENS_OF_A_LETTER = 4
"""At most one token in four is a letter at the beginning of a word, so that texts in many scripts have words too."""
_FIELDS_OF_IDS = {
    "pad_token_id": _PAD,
    "unk_token_id": _UNKNOWN,
    "cls_token_id": _BEGINNING,
    "bos_token_id": _BEGINNING,
    "sep_token_id": _SEPARATOR,
    "eos_token_id": _SEPARATOR,
    "mask_token_id": _MASK,
}
"""Fields of a configuration with the id of a special token."""


def train_wordpieces(
    read_texts: Callable[[], Iterable[str]], words: int, *, lowercase: bool = True, has_segments: bool = True
) -> PreTrainedTokenizerBase:
    """Train a tokenizer; the same texts always give the same one, bit for bit.

    Args:
        read_texts: Iterates over the texts; called twice.
        words: Number of tokens, special ones among them.
        lowercase: Lower the case of all text and take off accents, as BERT's uncased tokenizers do.
        has_segments: Whether the model tells the two texts of a pair apart.

    Raises:
        ModelError: for texts that do not give so many tokens.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    letters = _find_letters(read_texts(), normalizer, most=words // _TOKENS_OF_A_LETTER)

    # The trainer numbers letters inside of words in an order that changes from call to call, and merges pairs of equal
    # frequency in the order of their numbers. It numbers special tokens in the order in which it gets them. So these
    # letters are special tokens to the trainer.
    inner_letters = [CONTINUATION + letter for letter in letters.inside]
    trainer = trainers.WordPieceTrainer(
        vocab_size=words,
        special_tokens=[*_SPECIAL, *inner_letters],
        initial_alphabet=letters.all,
        limit_alphabet=len(letters.all),
        show_progress=False,
    )
    trained = _backend({name: number for number, name in enumerate(_SPECIAL)}, normalizer)
    trained.train_from_iterator(read_texts(), trainer)
    vocabulary = trained.get_vocab()
    if len(vocabulary) < words:
        raise ModelError(
            f"student.vocabulary.train is {words:,}, but the text gives only {len(vocabulary):,} WordPieces; give "
            f"a number up to {len(vocabulary)}, or more text."
        )

    # Importing it takes long.
    from transformers import PreTrainedTokenizerFast

    input_names = ["input_ids", "attention_mask"]
    if has_segments:
        input_names.insert(1, "token_type_ids")
    return PreTrainedTokenizerFast(
        # A tokenizer of the same vocabulary, to which letters are no special tokens.
        tokenizer_object=_backend(vocabulary, normalizer),
        model_input_names=input_names,
        padding_side="right",
        pad_token=_PAD,
        unk_token=_UNKNOWN,
        cls_token=_BEGINNING,
        sep_token=_SEPARATOR,
        mask_token=_MASK,
    )


def read_wordpieces(folder: Path) -> PreTrainedTokenizerBase:
    """Read a trained tokenizer that was saved in a folder of its own, without a model beside it."""
    from transformers import PreTrainedTokenizerFast

    tokenizer: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    return tokenizer


def _backend(vocabulary: dict[str, int], normalizer: normalizers.Normalizer) -> Tokenizer:
    """Return a tokenizer of a vocabulary, which puts special tokens around a text or a pair as BERT does."""
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=_UNKNOWN))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{_BEGINNING} $A {_SEPARATOR}",
        pair=f"{_BEGINNING} $A {_SEPARATOR} $B:1 {_SEPARATOR}:1",
        special_tokens=[(name, _SPECIAL.index(name)) for name in (_BEGINNING, _SEPARATOR)],
    )
    return backend


class _Letters(NamedTuple):
    """The letters of some texts that become tokens, sorted.

    Args:
        all: All of them.
        inside: Those that stand behind another letter of their word.
    """

    all: list[str]
    inside: list[str]


def _find_letters(texts: Iterable[str], normalizer: normalizers.Normalizer, *, most: int) -> _Letters:
    """Find the most frequent letters of some texts, and which of them stand inside of words.

    A letter inside of a word, behind its first letter, becomes a token of its own, such as `##e` beside `e`.

    Args:
        texts: The texts.
        normalizer: The normalizer of the tokenizer.
        most: Largest number of letters; rarer ones are unknown to the tokenizer.
    """
    # Texts are split at spaces first, so that a word that occurs often is split at its punctuation only once.
    spaced_words: Counter[str] = Counter()
    for text in texts:
        spaced_words.update(normalizer.normalize_str(text).split())
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    for spaced_word, count in spaced_words.items():
        for word, _ in pre_tokenizer.pre_tokenize_str(spaced_word):
            for letter in word:
                counts[letter] += count
            inside.update(word[1:])
    # Letters of equal frequency come in the order of the alphabet, so that the same texts always give the same letters.
    by_frequency = sorted(counts, key=lambda letter: (-counts[letter], letter))
    frequent = sorted(by_frequency[:most])
    return _Letters(all=frequent, inside=[letter for letter in frequent if letter in inside])


def set_special_ids(config: PreTrainedConfig) -> None:
    """Write the ids of the special tokens of a trained tokenizer into a configuration, in place.

    Only fields that have an id are set: a family may do without some of them.
    """
    for field, token in _FIELDS_OF_IDS.items():
        if getattr(config, field, None) is not None:
            setattr(config, field, _SPECIAL.index(token))
