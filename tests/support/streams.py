"""Folders of generated text in every kind of file, and what reads them and makes corpora and streams of them."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from limbeck.corpus import (
    Corpus,
    CorpusSettings,
    LabelledCorpus,
    LabelledSettings,
    Lane,
    SourceReport,
    StreamedCorpus,
    build_corpus,
    build_labelled_corpus,
    open_source,
    open_stream,
)
from limbeck.corpus.files.file_kinds import TableLayout
from limbeck.corpus.rows.labelled_rows import LabelledRow
from limbeck.corpus.sources.named_sources import open_rows
from limbeck.kinds.registry import KINDS

FILE_KINDS = (".txt", ".lines.txt", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".txt.xz", ".parquet", ".parquet.zst", ".md")
ALONE = Lane(0, 1)


def make_texts(name: str, count: int, seed: int = 0) -> list[str]:
    """Texts of five to forty words, all different."""
    generator = np.random.default_rng([seed, len(name)])
    words = ["".join(map(chr, generator.integers(97, 123, generator.integers(2, 8)))) for _ in range(200)]
    return [
        f"{name} number {number} " + " ".join(words[index] for index in generator.integers(0, 200, 5 + number % 36))
        for number in range(count)
    ]


def packed(compression: str, content: bytes) -> bytes:
    """Compress a content for `.gz`, `.xz` or `.zst`; under other suffixes it stays as it is."""
    ways = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
    return ways.get(compression, bytes)(content)


def write_packed(path: Path, content: bytes | str) -> Path:
    """Write a file, compressed as its name says; escaped surrogates are bytes that are not UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    path.write_bytes(packed(path.suffix, content))
    return path


def write_texts(path: Path, texts: Sequence[str]) -> Path:
    """Write texts as the suffix of the path says; `.lines.txt` has one a line."""
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


def read(source: Path | str, text_column: str = "text") -> tuple[list[str], SourceReport]:
    """The texts of a source, and the report of reading them."""
    report = SourceReport()
    return [document.text for document in open_source(str(source), text_column).documents(report)], report


def examples(source: Path | str, **settings: Any) -> tuple[list[LabelledRow], SourceReport]:
    """The labelled rows of a source, and the report of reading them."""
    report = SourceReport()
    chosen = row_settings(source, **settings)
    read_example = KINDS[chosen.task].reader(chosen)
    rows = open_rows(str(source), TableLayout(tuple(settings.get("header", ())))).rows(report)
    return [example for row in rows for example in read_example(row, report)], report


def text_settings(*sources: Path | str, **settings: Any) -> CorpusSettings:
    """Settings of a corpus of short blocks."""
    return CorpusSettings(
        sources=[source if isinstance(source, dict) else str(source) for source in sources],
        **{"length": 24, "minimum_tokens": 1, "held_out": 0.2, **settings},
    )


def row_settings(*sources: Path | str, **settings: Any) -> LabelledSettings:
    """Settings of a corpus of two classes."""
    options = {"labels": ("negative", "positive"), "held_out": 0.2, "length": 40, **settings}
    kind = options.pop("task", "classification")
    columns = list(options.pop("header", ())) or None
    return LabelledSettings(kind=kind, columns=columns, sources=[*map(str, sources)], **options)


def build_text(
    cache: Path, tokenizer: Any, *sources: Path | str, workers: int | None = 1, progress: Any = None, **settings: Any
) -> Corpus:
    """Build a corpus of short blocks."""
    chosen = text_settings(*sources, **settings)
    return build_corpus(chosen, tokenizer, cache_dir=cache, workers=workers, progress=progress)


def build_rows(
    cache: Path, tokenizer: Any, *sources: Path | str, workers: int | None = 1, progress: Any = None, **settings: Any
) -> LabelledCorpus:
    """Build a corpus of two classes."""
    chosen = row_settings(*sources, **settings)
    kind = KINDS[chosen.task]
    return build_labelled_corpus(chosen, tokenizer, kind, cache_dir=cache, workers=workers, progress=progress)


def stream(cache: Path, tokenizer: Any, *sources: Path | str, **settings: Any) -> StreamedCorpus:
    """Open sources as a stream of short blocks."""
    chosen = text_settings(*sources, **{"held_out": 0.1, "shuffle_buffer": 40, "streaming": True, **settings})
    return open_stream(chosen, tokenizer, cache_dir=cache)


def hub_of(monkeypatch: Any, *files: Path) -> list[Any]:
    """Let every data set of the Hub be these files; return a list that receives what is asked of it."""
    asked: list[Any] = []
    load_dataset = datasets.load_dataset

    def load(name: str, config: str | None, **options: Any) -> Any:
        asked.append((name, config, options["split"], options["revision"]))
        return load_dataset("json", data_files=[*map(str, files)], split="train", streaming=options["streaming"])

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


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
