"""Folders of generated text in every kind of file, and helpers to read them as streams."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from limbeck.corpus import CorpusSettings, Lane, StreamedCorpus, open_stream

KINDS = (".txt", ".lines.txt", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet", ".parquet.zst", ".md")
ALONE = Lane(0, 1)


def make_texts(name: str, count: int, seed: int = 0) -> list[str]:
    """Texts of five to forty words, all different."""
    generator = np.random.default_rng([seed, len(name)])
    words = ["".join(map(chr, generator.integers(97, 123, generator.integers(2, 8)))) for _ in range(200)]
    return [
        f"{name} number {number} " + " ".join(words[index] for index in generator.integers(0, 200, 5 + number % 36))
        for number in range(count)
    ]


def write_packed(path: Path, content: bytes | str) -> Path:
    """Write a file, compressed as its name says."""
    content = content.encode() if isinstance(content, str) else content
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content))
    return path


def write_texts(path: Path, texts: Sequence[str]) -> Path:
    """Write texts as the suffix of the path says; `.lines.txt` has one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name
    if ".parquet" in name:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": list(texts)}), sink, row_group_size=7)
        content = sink.getvalue().to_pybytes()
    elif ".jsonl" in name:
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    else:
        content = ("\n" if ".lines" in name else "\n\n").join(texts).encode()
    return write_packed(path, content)


def stream(cache: Path, tokenizer: Any, *sources: Path | str, **settings: Any) -> StreamedCorpus:
    """Open sources as a stream of short blocks."""
    options: dict[str, Any] = {"length": 24, "minimum_tokens": 1, "held_out": 0.1, "shuffle_buffer": 40, **settings}
    return open_stream(CorpusSettings(list(map(str, sources)), streaming=True, **options), tokenizer, cache_dir=cache)


def take(
    corpus: StreamedCorpus, count: int, lane: Lane = ALONE, state: Any = None, batch_size: int = 4
) -> list[tuple[list[tuple[int, ...]], str]]:
    """Some batches as tuples of ids, each with its state as JSON."""
    state = None if state is None else json.loads(state)
    batches = corpus.batches(lane, batch_size=batch_size, seed=3, state=state)
    return [
        ([tuple(block.ids.tolist()) for block in blocks], json.dumps(behind))
        for blocks, behind in islice(batches, count)
    ]
