"""Loading, saving and calling tokenizers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from transformers import AutoTokenizer, BatchEncoding, PreTrainedConfig, PreTrainedTokenizerBase

from limbeck.errors import ModelError, shorten_error
from limbeck.models.configuration import read_config
from limbeck.models.families import family_of, shape_of
from limbeck.models.folder_files import read_json
from limbeck.models.hub_files import check_fetched
from limbeck.models.loading import fetch_quietly
from limbeck.models.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Files of a vocabulary. In a folder without any of them `transformers` makes up a tokenizer of five tokens.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)

_SETTINGS = "tokenizer_config.json"
_BESIDE_TOKENIZERS = (
    "config.json",
    _SETTINGS,
    "special_tokens_map.json",
    "added_tokens.json",
    "merges.txt",
    "*.jinja",
)
"""Further files that are read with a tokenizer."""


def load_tokenizer(name_or_path: str | Path, *, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Raises:
        ModelError: for a missing folder, one without tokenizer files, unreadable ones, or a Hub name that
            cannot be reached.
    """
    folder = fetch_quietly(name_or_path, revision, (*_TOKENIZER_FILES, *_BESIDE_TOKENIZERS))
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        check_fetched(name_or_path)
        raise ModelError(f"The folder '{name_or_path}' has no tokenizer; save the model's tokenizer in this folder.")
    config = read_config(name_or_path, folder)
    settings = read_json(folder / _SETTINGS, {})
    _check_settings(name_or_path, settings, config)

    # The settings may name files, which could lie anywhere. Keyword arguments of None replace these settings, so that
    # the usual files of the folder are read.
    settings_of_files = [key for key in settings if key.endswith("_file")]
    no_files = dict.fromkeys(settings_of_files)
    with quiet():
        try:
            loaded = AutoTokenizer.from_pretrained(
                str(folder), config=config, local_files_only=True, trust_remote_code=False, **no_files
            )
        except Exception as error:  # Each wrong value raises another class.
            raise ModelError(f"The tokenizer of '{name_or_path}' cannot be read: {shorten_error(error)}") from error
    tokenizer: PreTrainedTokenizerBase = loaded
    # A tokenizer keeps its settings, and is saved with them. These would lead its next reader to other files or code.
    for key in ("auto_map", *settings_of_files):
        tokenizer.init_kwargs.pop(key, None)
    return tokenizer


def _check_settings(name: str | Path, settings: Mapping[str, Any], config: PreTrainedConfig) -> None:
    """Refuse settings of a tokenizer that lead to other code or files.

    Args:
        name: The model, as the user named it.
        settings: Settings of the tokenizer.
        config: Configuration of the model, which may declare a tokenizer too.
    """
    for key in ("fast_tokenizer_files", "init_inputs"):
        if settings.get(key):
            raise ModelError(
                f"The {_SETTINGS} of '{name}' names files by '{key}', but limbeck reads a tokenizer's files only "
                f"under their usual names: remove the key '{key}'."
            )
    declared_classes: list[Any] = [settings.get("tokenizer_class"), getattr(config, "tokenizer_class", None)]
    for declared in declared_classes:
        if declared is None or declared == "":
            continue
        class_name = str(declared)
        # `transformers` looks for a fast and a slow tokenizer of each name.
        spellings = [class_name, class_name.removesuffix("Fast"), f"{class_name}Fast"]
        if not all(_is_no_other_class(spelling) for spelling in spellings):
            raise ModelError(
                f"The tokenizer of '{name}' is declared as a '{class_name[:80]}', which is not the class of a "
                "tokenizer; copy or download the model again."
            )


def _is_no_other_class(name: str) -> bool:
    """Whether `transformers` has a tokenizer's class of this name, or nothing at all."""
    if not name.isidentifier():
        return False
    value = getattr(transformers, name, PreTrainedTokenizerBase)
    return isinstance(value, type) and issubclass(value, PreTrainedTokenizerBase)


_SETTINGS_OF_CALLS = ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "local_files_only")
"""Settings that `transformers` takes over into a tokenizer from the calls that made it, or that it was saved after."""


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Copy a tokenizer without the padding and truncation that earlier calls, or its own file, have set in it.

    Each call changes these settings inside of a fast tokenizer, so a copy is used, and the tokenizer itself stays as it
    is.
    """
    plain = copy.deepcopy(tokenizer)
    backend = getattr(plain, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
    for key in _SETTINGS_OF_CALLS:
        plain.init_kwargs.pop(key, None)
    return plain


def save_tokenizer(
    folder: Path, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, longest: int | None = None
) -> None:
    """Write a tokenizer beside its model.

    It is written without the truncation that a call has set, which would cut its users' texts. It pads on the right if
    the model's positions need that.

    Args:
        folder: The model's folder.
        tokenizer: Left as it is.
        model: The model, whose longest input bounds the tokenizer's `model_max_length`.
        longest: Another bound in tokens, such as that of sentence vectors; None for no other.
    """
    plain = plain_tokenizer(tokenizer)
    # For question answering the side of padding also decides whether the question or the context comes first, and the
    # model has learned one order. So its side is kept.
    answers_questions = type(model).__name__.endswith("ForQuestionAnswering")
    if pads_against_positions(plain, model.config) and not answers_questions:
        plain.padding_side = "right"
    bounds = (plain.model_max_length, shape_of(model.config).positions, longest)
    # A bound of 0 or None bounds nothing.
    plain.model_max_length = min(bound for bound in bounds if bound)
    plain.save_pretrained(str(folder))


def pads_against_positions(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> bool:
    """Return whether a tokenizer pads on the left although the model counts positions from there.

    Padding on the left moves the positions of a text's tokens, so that its outputs depend on the texts beside it.
    """
    return tokenizer.padding_side == "left" and _counts_positions_from_left(config)


def _counts_positions_from_left(config: PreTrainedConfig) -> bool:
    """Return whether tokens have an embedding of their place, counted from the first column of a batch."""
    family = family_of(config)
    # Where positions are counted from the padding's id, padding has no place itself.
    return family.positions is not None and not family.padded_positions


def encode_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str | tuple[str, str]], **options: Any
) -> BatchEncoding:
    """Tokenise texts and pairs, whatever padding and truncation the tokenizer's file fixes.

    Args:
        tokenizer: Left as it is.
        texts: The texts.
        options: Keyword arguments of the call, such as `max_length` with `truncation=True`.
    """
    return plain_tokenizer(tokenizer)(list(texts), padding=False, verbose=False, **options)
