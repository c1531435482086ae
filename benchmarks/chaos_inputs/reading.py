"""How text gets in: built to a corpus, streamed or read; what is taken in has to be counted."""

from __future__ import annotations

import gzip
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import zstandard
from benchmarks.chaos_inputs.scene import WORDS, Scene
from benchmarks.chaos_inputs.trial import COUNTED, SILENT, Trial

from limbeck.corpus import CorpusSettings, Lane, SourceReport, build_corpus, open_source, open_stream

PACKING = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


def build(source: str, scene: Scene, folder: Path) -> Any:
    settings = CorpusSettings(sources=source, length=24, minimum_tokens=1, held_out=0.1)
    return build_corpus(settings, scene.tokenizer, cache_dir=folder / "cache", workers=1)


def stream(source: str, scene: Scene, folder: Path) -> Any:
    settings = CorpusSettings(sources=source, length=24, minimum_tokens=1, held_out=0, streaming=True, shuffle_buffer=8)
    corpus = open_stream(settings, scene.tokenizer, cache_dir=folder / "cache")
    list(islice(corpus.batches(Lane(0, 1), batch_size=2, seed=0), 9))
    return corpus


def counted(corpus: Any) -> str:
    """What is taken in has to be counted, in lines that a terminal shows."""
    return has_lines(corpus.report)


def has_lines(report: SourceReport) -> str:
    lines = report.lines()
    return COUNTED if lines and all(line.isprintable() for line in lines) else SILENT


def read_to_the_end(path: Path) -> SourceReport:
    """Read a file to its end, as building does before it tokenises: that would take a minute here."""
    report = SourceReport()
    for _ in open_source(str(path)).documents(report):
        pass
    return report


def trial_of_source(random: Random, scene: Scene, folder: Path, what: str, source: Path | str) -> Trial:
    read = random.choice([build, build, build, stream])
    names = (Path(str(source)).name[:20], str(source)[:20], ascii(str(source))[1:20])
    return Trial(f"{read.__name__} {what}", partial(read, str(source), scene, folder), names, counted)


def trial_of_file(random: Random, scene: Scene, folder: Path, what: str, name: str, content: bytes) -> Trial:
    path = folder / "text" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return trial_of_source(random, scene, folder, f"{name}: {what}", path)


def sentence(random: Random) -> str:
    return " ".join(random.choices(WORDS, k=random.randint(4, 12)))


def text_of_documents(random: Random) -> str:
    return "\n\n".join(sentence(random) for _ in range(20))
