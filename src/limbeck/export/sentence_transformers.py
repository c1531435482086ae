"""The few files that make a transformers folder a sentence-transformers one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MODULES = "sentence_transformers.models"


def write_sentence_transformers_files(
    folder: Path, *, width: int, pooling: str, normalize: bool, max_length: int | None
) -> None:
    """Say in a model's folder how sentence vectors are made, so that `SentenceTransformer(folder)` loads it.

    Args:
        folder: Holds the model and its tokenizer.
        width: Width of the vectors.
        pooling: `"mean"` or `"cls"`.
        normalize: Scale vectors to length one.
        max_length: Longest input in tokens, or None for the model's own.
    """
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{_MODULES}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{_MODULES}.Pooling"},
    ]
    if normalize:
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": f"{_MODULES}.Normalize"})
        (folder / "2_Normalize").mkdir(exist_ok=True)
    _write(folder / "modules.json", modules)
    transformer: dict[str, Any] = {"do_lower_case": False}
    if max_length is not None:
        transformer["max_seq_length"] = max_length
    _write(folder / "sentence_bert_config.json", transformer)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    _write(
        folder / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
