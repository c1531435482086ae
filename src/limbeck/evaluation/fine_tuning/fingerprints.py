"""Fingerprints of a model's files and of a task's rows: equal where the results must be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from limbeck.evaluation.tasks.load import TRAIN
from limbeck.evaluation.tasks.task import TaskData, TaskRow
from limbeck.models.loading import load_config
from limbeck.models.locating import is_local, resolve_model

_MODEL_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "modules.json", "*_Pooling/config.json")
_TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model")
_CHUNK = 1 << 20


def model_fingerprint(name: str) -> str:
    """Return a hash of a model's weights, configuration and tokenizer; of a Hub model, of its commit.

    Args:
        name: A folder, `package:NAME` or a Hub name.

    Raises:
        ModelError: if there is no such model.
    """
    resolved = resolve_model(name)
    if not is_local(resolved):
        commit = getattr(load_config(name), "_commit_hash", None)
        return _text_hash(f"{resolved}@{commit}")
    folder = Path(resolved)
    files = {file for pattern in (*_MODEL_FILES, *_TOKENIZER_FILES) for file in folder.glob(pattern)}
    digest = hashlib.blake2b(digest_size=12)
    for file in sorted(files):
        digest.update(f"{file.relative_to(folder)}\0".encode())
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def tokenizer_fingerprint(name: str) -> str:
    """Return a hash of a model's tokenizer files, so that models with the same tokenizer share their tokens.

    Raises:
        ModelError: if there is no such model.
    """
    resolved = resolve_model(name)
    if not is_local(resolved):
        return model_fingerprint(name)
    folder = Path(resolved)
    files = {file for pattern in _TOKENIZER_FILES for file in folder.glob(pattern)}
    digest = hashlib.blake2b(digest_size=12)
    for file in sorted(files):
        digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def data_fingerprint(data: TaskData) -> str:
    """Return a hash of what a task is scored by and of every row of its splits."""
    task = data.task
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps([task.name, task.kind, task.labels, task.select, task.answerable_only]).encode())
    for split in sorted(data.splits):
        digest.update(f"\0{split}\0".encode())
        _add_rows(digest, data.splits[split])
    return digest.hexdigest()


def training_set_fingerprint(data: TaskData) -> str:
    """Return a hash of the rows that a task is trained on, with the kind of its head and its classes.

    Tasks that are trained on the same rows of another task (AX and XNLI on MNLI's, MLQA and XQuAD on SQuAD's) have the
    same.
    """
    digest = hashlib.blake2b(digest_size=12)
    digest.update(json.dumps([data.task.kind, data.task.labels]).encode())
    _add_rows(digest, data.splits.get(TRAIN, ()))
    return digest.hexdigest()


def _add_rows(digest: hashlib.blake2b, rows: Sequence[TaskRow]) -> None:
    for row in rows:
        digest.update(json.dumps(list(asdict(row).values()), ensure_ascii=False).encode())


def _text_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
