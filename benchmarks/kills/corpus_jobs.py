"""Building a corpus: files with repeats and bad lines, read once, tokenised by several processes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from limbeck.core.cache import read_manifest
from limbeck.corpus import CorpusSettings, build_corpus
from limbeck.corpus.stored import arrow_files

from .inputs import documents, tokenizer, write_jsonl
from .job import Job, hash_of, identity_of

_WORKERS = 3
_ASIDE, _PIECE = ".building-", ".piece.json"
_NOTES = "sources"


def prepare(inputs: Path) -> None:
    """Write four sources; a tenth of the documents come twice."""
    texts = documents(6000, seed=1)
    write_jsonl(inputs / "a" / "1.jsonl", [*texts[:2000], *texts[:200]])
    with (inputs / "a" / "1.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"text": "cut\n{"text": 7}\n')
    with gzip.open(inputs / "a" / "2.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts[1800:4000])
    pyarrow.parquet.write_table(pa.table({"text": texts[3800:]}), inputs / "b.parquet", row_group_size=300)
    (inputs / "packages").mkdir()
    for number, text in enumerate(texts[:300]):
        (inputs / "packages" / f"m{number:03d}.py").write_text(f'"""{text}\n\nModule {number}."""\n')


def run(inputs: Path, folder: Path) -> None:
    """Build; pieces are small, so that a corpus of a moment has many."""
    arrow_files.SHARD_CHARACTERS = 60_000
    arrow_files.BATCH_ITEMS = 50
    sources = [str(inputs / "a"), str(inputs / "b.parquet"), f"installed-docs:{inputs / 'packages'}"]
    settings = CorpusSettings(sources=sources, length=48, held_out=0.05)
    build_corpus(settings, tokenizer(), cache_dir=folder, workers=_WORKERS)


def kept(folder: Path) -> dict[str, Any]:
    """The files that finished pieces and folders vouch for; a folder in the making has its later name."""
    return {
        str(path.relative_to(folder)).replace(_ASIDE, ""): identity_of(path)
        for part in folder.glob("*/*")
        if part.is_dir()
        for path in _vouched_for(part)
    }


def outcome(folder: Path) -> dict[str, Any]:
    """Every file there is, byte for byte; of the notes about the sources, the content that was read."""
    outcomes: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(folder))
        if path.parent == folder / _NOTES:
            # The states beside it depend on the clock: a source that has just been written has none yet.
            outcomes[name] = json.loads(path.read_text(encoding="utf-8"))["first"]
        else:
            outcomes[name] = hash_of(path)
    return outcomes


def _vouched_for(part: Path) -> Iterator[Path]:
    listed = dict((read_manifest(part) or {}).get("files", {}))
    for piece in part.glob(f"*{_PIECE}"):
        listed |= json.loads(piece.read_text(encoding="utf-8"))["files"]
    found = {path.name: path for path in part.iterdir()}
    return (found[name] for name, facts in listed.items()
            if name in found and found[name].stat().st_size == facts["bytes"])  # fmt: skip


JOBS = (Job("corpus", "build", prepare, run, kept, outcome, frozenset({"documents", "tokens"}), workers=True),)
