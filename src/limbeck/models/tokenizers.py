"""Loading, saving and calling tokenizers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from transformers import AutoTokenizer, BatchEncoding, PreTrainedConfig, PreTrainedTokenizerBase

from limbeck.errors import ModelError, shorten_error
from limbeck.models.configuration import read_config
from limbeck.models.families import shape_of
from limbeck.models.folder_files import read_json
from limbeck.models.hub_files import check_fetched
from limbeck.models.loading import fetch_quietly
from limbeck.models.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Without one of these `transformers` makes up a tokenizer of five tokens instead of failing.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)

_BESIDE_TOKENIZERS = (
    "config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "*.jinja",
)  # fmt: skip


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
        raise ModelError(f"The folder '{name_or_path}' has no tokenizer; save the model's tokenizer there.")
    config = read_config(name_or_path, folder)
    named = _check_tokenizer(name_or_path, folder, config)
    with quiet():
        try:
            # A file that is named by the settings is not read: the folder's own is.
            options = dict.fromkeys(named)
            loaded = AutoTokenizer.from_pretrained(
                str(folder), config=config, local_files_only=True, trust_remote_code=False, **options
            )
        except Exception as error:  # Each wrong value has its own kind.
            raise ModelError(f"The tokenizer of '{name_or_path}' cannot be read: {shorten_error(error)}") from error
    tokenizer: PreTrainedTokenizerBase = loaded
    for key in ("auto_map", *named):
        tokenizer.init_kwargs.pop(key, None)
    return tokenizer


def _check_tokenizer(name: str | Path, folder: Path, config: PreTrainedConfig) -> list[str]:
    """Return the settings of a tokenizer that name files, after refusing those that lead to other code or files."""
    settings = read_json(folder / "tokenizer_config.json", {})
    for key in ("fast_tokenizer_files", "init_inputs"):
        if settings.get(key):
            raise ModelError(
                f"The tokenizer_config.json of '{name}' names files by '{key}', but limbeck reads a tokenizer's "
                "files only by their usual names: remove the key."
            )
    kinds: list[Any] = [settings.get("tokenizer_class"), getattr(config, "tokenizer_class", None)]
    for kind in filter(None, map(str, kinds)):
        for spelling in (kind, kind.removesuffix("Fast"), f"{kind}Fast"):
            tokenizer_class = (
                getattr(transformers, spelling, PreTrainedTokenizerBase) if spelling.isidentifier() else None
            )
            if not (isinstance(tokenizer_class, type) and issubclass(tokenizer_class, PreTrainedTokenizerBase)):
                raise ModelError(f"The tokenizer of '{name}' is declared as a '{kind[:80]}', which is not a tokenizer.")
    return [key for key in settings if key.endswith("_file")]


# What `transformers` takes over into a tokenizer's settings from the calls that made it, or that it was saved after.
_OF_CALLS = ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "local_files_only")


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Copy a tokenizer without the padding and truncation that calls, or its own file, have left in it.

    Each call rewrites these settings inside the fast tokenizer, so that one in use is left alone.
    """
    plain = copy.deepcopy(tokenizer)
    backend = getattr(plain, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
    for key in _OF_CALLS:
        plain.init_kwargs.pop(key, None)
    return plain


def save_tokenizer(
    folder: Path, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, longest: int | None = None
) -> None:
    """Write a tokenizer beside its model, see `plain_tokenizer`: whoever loads it would otherwise read texts cut.

    Args:
        folder: The model's.
        tokenizer: Left as it is.
        model: Whose longest input bounds `model_max_length`.
        longest: Another bound in tokens, such as that of sentence vectors; None where there is none.
    """
    plain = plain_tokenizer(tokenizer)
    bounds = (plain.model_max_length, shape_of(model.config).positions, longest)
    plain.model_max_length = min(bound for bound in bounds if bound)
    plain.save_pretrained(str(folder))


def encode_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str | tuple[str, str]], **options: Any
) -> BatchEncoding:
    """Tokenise texts and pairs, whatever padding and truncation the tokenizer's file fixes.

    Args:
        tokenizer: Left as it is.
        texts: The texts.
        options: Of the call, such as `max_length` with `truncation=True`.
    """
    return plain_tokenizer(tokenizer)(list(texts), padding=False, verbose=False, **options)
