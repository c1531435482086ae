"""Measures the highest resident memory while corpora of growing size are streamed, and while they are built.

Every measurement has a process of its own. Generated text of random words, about 1,500 characters a document, goes
through the same code as any other: read, tokenised by a BERT tokenizer, packed, shuffled, batched. The stream is read
to the end of its first pass; the build is in one process. Flat means that no corpus needs 10 % more or less than the
smallest; if one does, the exit code is 1.

    python benchmarks/streaming_memory.py --output benchmarks/results/streaming_memory.json
    python benchmarks/streaming_memory.py --megabytes 50 100 --ways stream
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import resource
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from limbeck.corpus import CorpusSettings, Lane, build_corpus, open_stream
from limbeck.version import __version__

WAYS = ("stream", "build")
WORDS = 30_000
SHARD_MEGABYTES = 25
BATCH = 32
FLAT = 0.10


def make_words() -> list[str]:
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 11, WORDS)
    letters = generator.integers(97, 123, lengths.sum(), dtype=np.uint8).tobytes().decode()
    ends = np.cumsum(lengths)
    return [letters[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def make_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer that knows nine words in ten: a token is about five characters, as in English."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(97, 123)]
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words[: WORDS * 9 // 10]])
    backend = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def write_corpus(folder: Path, megabytes: int, words: list[str]) -> None:
    """Write `.jsonl.zst` shards of `SHARD_MEGABYTES` of text each."""
    folder.mkdir(parents=True, exist_ok=True)
    table = np.array(words)
    for shard in range(-(-megabytes // SHARD_MEGABYTES)):
        path = folder / f"{shard:05d}.jsonl.zst"
        if path.exists():
            continue
        generator = np.random.default_rng(shard)
        left = min(SHARD_MEGABYTES, megabytes - shard * SHARD_MEGABYTES) * 10**6
        partial = path.with_suffix(".partial")
        with partial.open("wb") as raw, zstandard.ZstdCompressor(level=1).stream_writer(raw) as file:
            while left > 0:
                text = " ".join(table[generator.integers(0, WORDS, generator.integers(50, 400))])
                left -= file.write(json.dumps({"text": text}).encode() + b"\n")
        partial.replace(path)


def stream(settings: CorpusSettings, tokenizer: PreTrainedTokenizerFast, cache: Path) -> int:
    corpus = open_stream(settings, tokenizer, cache_dir=cache)
    blocks = 0
    for batch, _ in corpus.batches(Lane(0, 1), batch_size=BATCH, seed=0):
        if any(block.earlier_passes for block in batch):
            return blocks
        blocks += len(batch)
    raise AssertionError("a stream has no end")


def measure(way: str, folder: Path, cache: Path, sender) -> None:
    """In a process of its own: its peak, what it had before it began, seconds and blocks."""
    tokenizer = make_tokenizer(make_words())
    settings = CorpusSettings(sources=str(folder), length=128, streaming=way == "stream")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    if way == "stream":
        blocks = stream(settings, tokenizer, cache)
    else:
        blocks = len(build_corpus(settings, tokenizer, cache_dir=cache, workers=1).train)
    sender.send(
        {
            "way": way,
            "blocks": blocks,
            "seconds": round(time.monotonic() - began, 1),
            "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "before_megabytes": round(before / 1024, 1),
        }
    )


def run_alone(way: str, folder: Path, work: Path, method: str = "spawn") -> dict[str, Any]:
    """Measure in a new process; a forked one begins with this one's memory."""
    context = multiprocessing.get_context(method)
    with tempfile.TemporaryDirectory(dir=work) as cache:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=measure, args=(way, folder, Path(cache), sender))
        process.start()
        sender.close()
        row = receiver.recv()
        process.join()
    return row


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    peaks: dict[str, list[float]] = {}
    for row in rows:
        peaks.setdefault(row["way"], []).append(row["peak_megabytes"])
    growth = {way: [round(peak / found[0] - 1, 4) for peak in found[1:]] for way, found in peaks.items()}
    return {
        "what": "highest resident memory (MB) against megabytes of text",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "limbeck": __version__,
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "growth": growth,
        "flat": all(abs(part) <= FLAT for parts in growth.values() for part in parts),
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[50, 200, 600, 2000], help="Sizes of text.")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--work", type=Path, help="Keeps the generated text between runs; default: a temporary folder.")
    parser.add_argument("--output", type=Path, help="Where to write the result, anew after every measurement.")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        for megabytes in sorted(arguments.megabytes):
            folder = work / f"text-{megabytes}"
            write_corpus(folder, megabytes, make_words())
            for way in arguments.ways:
                rows.append({"megabytes": megabytes, **run_alone(way, folder, work)})
                print(rows[-1], flush=True)
                if arguments.output is not None:
                    arguments.output.write_text(json.dumps(summarise(rows), indent=2) + "\n", encoding="utf-8")
    result = summarise(rows)
    print(json.dumps({"growth": result["growth"], "flat": result["flat"]}))
    if not result["flat"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
