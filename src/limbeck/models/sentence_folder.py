"""What a sentence-transformers folder says beside the Transformer: pooling, normalising, the longest
input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.errors import ModelError
from limbeck.models.locating import folder_inside, is_local, resolve_model

_MOST_TOKENS = 100_000_000


@dataclass(frozen=True)
class SentencePooling:
    """How a sentence-embedding model makes one vector of a text.

    Attributes:
        pooling: `"mean"` over real tokens, or `"cls"`, the first token.
        normalize: Whether vectors are scaled to length one.
        max_length: The longest input in tokens, special ones included, or None where the folder does not say.
    """

    pooling: str
    normalize: bool
    max_length: int | None


def sentence_pooling(name_or_path: str | Path) -> SentencePooling | None:
    """Read the pooling of a local sentence-transformers folder.

    Args:
        name_or_path: A folder or `package:NAME` (see `resolve_model`).

    Returns:
        None for a folder without `modules.json` (an ordinary Transformer) and for a Hub name, whose extra
        files are not fetched.

    Raises:
        ModelError: for a missing folder, unreadable files, or a pooling that is neither mean nor cls.
    """
    resolved = resolve_model(name_or_path)
    if not is_local(resolved):
        return None
    root = Path(resolved)
    if not (root / "modules.json").is_file():
        root = root.parent if (root.parent / "modules.json").is_file() else root
    modules = [module for module in _read(root / "modules.json", []) if isinstance(module, dict)]
    paths = {str(module.get("type", "")).rsplit(".", 1)[-1]: str(module.get("path", "")) for module in modules}
    if "Pooling" not in paths:
        return None
    pooling = folder_inside(root, paths["Pooling"], "modules.json")
    return SentencePooling(
        pooling=_pooling_mode(pooling / "config.json"),
        normalize="Normalize" in paths,
        max_length=_longest_input(Path(resolved) / "sentence_bert_config.json"),
    )


def _longest_input(file: Path) -> int | None:
    length = _read(file, {}).get("max_seq_length")
    if length is None:
        return None
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= _MOST_TOKENS:
        raise ModelError(
            f"max_seq_length in '{file}' is {str(length)[:80]}; give a whole number of 1 to {_MOST_TOKENS:,}, or null."
        )
    return length


def _pooling_mode(file: Path) -> str:
    config = _read(file, {})
    # New folders name the mode; older ones have one flag a mode.
    named = config.get("pooling_mode")
    modes = (
        [named] if isinstance(named, str) else [k for k, on in config.items() if k.startswith("pooling_mode_") and on]
    )
    names = {
        "mean": "mean",
        "cls": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "cls",
    }
    known = [names[mode] for mode in modes if mode in names]
    if len(modes) != 1 or not known:
        found = " + ".join(mode.removeprefix("pooling_mode_") for mode in modes) or "none"
        raise ModelError(f"The pooling in '{file}' is {found}; only mean and cls are supported.")
    return known[0]


def _read(file: Path, default: Any) -> Any:
    if not file.is_file():
        return default
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"The file '{file}' cannot be read as JSON; copy or download the model again.") from error
    if not isinstance(found, type(default)):
        raise ModelError(f"The file '{file}' does not hold what it should; copy or download the model again.")
    return found
