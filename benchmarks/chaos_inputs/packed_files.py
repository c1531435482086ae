"""Archives, parquet and very long lines: damaged, lying about their size, or not what their name says."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.reading import (
    PACKING,
    has_lines,
    read_to_the_end,
    sentence,
    text_of_documents,
    trial_of_file,
)
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import COUNTED, EQUAL, SILENT, Trial

from limbeck.corpus import SourceReport, open_source
from limbeck.corpus.files.opening import DAMAGED, NOT_TEXT


def long_line(random: Random, scene: Scene, folder: Path) -> Trial:
    size = random.choice([17, 18, 20]) * 2**20
    unit = random.choice([b"some words ", b"x", "wörd ".encode()])
    line = unit * (size // len(unit))
    name = random.choice(["a.txt", "a.jsonl", "a.md", "a.txt.gz"])
    content = b'{"text": "' + line + b'"}' if ".jsonl" in name else line
    if name.endswith(".gz"):
        content = gzip.compress(content, 1)
    (folder / name).write_bytes(content)
    return Trial(f"{name}: a line of {size // 2**20} MiB", partial(read_to_the_end, folder / name), (), has_lines)


def damaged_archive(random: Random, scene: Scene, folder: Path) -> Trial:
    kind = random.choice([".txt", ".jsonl", ".md"])
    text = (
        "\n".join(json.dumps({"text": sentence(random)}) for _ in range(200))
        if kind == ".jsonl"
        else text_of_documents(random) * 9
    )
    packing = random.choice([".gz", ".zst"])
    good = PACKING[packing](text.encode())
    way = random.choice(["cut", "noise", "header", "not packed", "other packing", "other kind"])
    content = {
        "cut": good[: random.randrange(len(good) - 1)],
        "noise": good[:12] + garbage.noise(random, len(good), len(good) + 1),
        "header": b"\0\0" + good[2:],
        "not packed": text.encode(),
        "other packing": PACKING[".gz" if packing == ".zst" else ".zst"](text.encode()),
        "other kind": lzma.compress(text.encode()),
    }[way]
    return trial_of_file(random, scene, folder, way, f"a{kind}{packing}", content)


def bomb(random: Random, scene: Scene, folder: Path) -> Trial:
    """A few kilobytes that unpack to hundreds of megabytes."""
    filler, size = (
        random.choice([b"a word ", b"words of text " * 50 + b"\n\n", b" ", b'{"text": "' + b"word " * 99 + b'"}\n']),
        random.choice([80, 120]) * 2**20,
    )
    packing = random.choice([".gz", ".zst"])
    name = f"a{random.choice(['.txt', '.jsonl', '.md'])}{packing}"
    sink = io.BytesIO()
    chunk = filler * (2**20 // len(filler))
    with (
        gzip.open(sink, "wb", 6)
        if packing == ".gz"
        else zstandard.ZstdCompressor().stream_writer(sink, closefd=False) as file
    ):
        for _ in range(size // len(chunk)):
            file.write(chunk)
    (folder / name).write_bytes(sink.getvalue())
    what = f"{name}: {len(sink.getvalue()):,} bytes that unpack to {size:,}"
    return Trial(what, partial(read_to_the_end, folder / name), (), has_lines)


def damaged_parquet(random: Random, scene: Scene, folder: Path) -> Trial:
    column = random.choice([
        pa.array([sentence(random) for _ in range(50)]), pa.array(["one", "two"] * 40).dictionary_encode(),
    ])  # fmt: skip
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": column}), sink, row_group_size=10)
    good = sink.getvalue()
    content = random.choice([
        good[: random.randrange(len(good))], good[:-8] + garbage.noise(random, 8, 9),
        b"PAR1" + garbage.noise(random, 50) + b"PAR1",
        garbage.noise(random, 50), b"", good[4:], good[:-4] + b"PARE",
    ])  # fmt: skip
    packing = random.choice(["", "", ".gz"])
    return trial_of_file(random, scene, folder, "damaged", f"a.parquet{packing}", PACKING[packing](content))


def parquet_of_something_else(random: Random, scene: Scene, folder: Path) -> Trial:
    column = random.choice([
        pa.array([1, 2, 3]), pa.array([["a"], []]), pa.array([{"a": 1}]), pa.array([], pa.string()),
        pa.array([None, None]),
        pa.array([True, False]), pa.array([b"\xff\xfe", b"\0"]), pa.array([1.5, float("nan")]),
        pa.array(["", " ", None]),
    ])  # fmt: skip
    name = random.choice(["text", "text", "text", "body", garbage.control_text(random)])
    sink = io.BytesIO()
    pq.write_table(pa.table({name: column}), sink)
    return trial_of_file(random, scene, folder, f"{column.type} in {name!r}", "a.parquet", sink.getvalue())


def archive_of_files(random: Random, scene: Scene, folder: Path) -> Trial:
    """A tar or zip whose members would lie elsewhere: nothing is unpacked to paths."""
    sink, member = (
        io.BytesIO(),
        random.choice(["../../outside.txt", "/tmp/outside.txt", "a/../../../outside.txt", "good.txt"]),
    )
    ending = random.choice([".tar", ".tar.gz", ".zip", ".txt", ".jsonl", ".txt.gz"])
    if ending == ".zip":
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr(member, text_of_documents(random))
    else:
        with tarfile.open(fileobj=sink, mode="w:gz" if ending.endswith(".gz") else "w") as archive_of:
            entry = tarfile.TarInfo(member)
            entry.size = 5
            archive_of.addfile(entry, io.BytesIO(b"hello"))
    return trial_of_file(random, scene, folder, f"an archive with {member!r}", f"a{ending}", sink.getvalue())


def _read_archive(path: Path) -> tuple[list[str], SourceReport]:
    report = SourceReport()
    return [document.text for document in open_source(str(path)).documents(report)], report


def _compare(texts: list[str], before: list[str], whole: bool, found: tuple[list[str], SourceReport]) -> str:
    """All of the text, or all that unpacks before the damage; what garbled bytes decode to may be no text at all."""
    read, report = found
    if read == texts:
        return EQUAL if not report.counts or DAMAGED in report.counts else SILENT
    is_prefix = read[: len(before)] == before and (not whole or all(map(str.startswith, texts, read)))
    return COUNTED if (is_prefix and DAMAGED in report.counts) or NOT_TEXT in report.counts else SILENT


def _archive_trial(random: Random, scene: Scene, folder: Path, way: str) -> Trial:
    """An archive that is cut, garbled or gone on with at any place, beside what of it can be unpacked."""
    texts = [f"{sentence(random)} {number}" for number in range(random.choice([1, 5, 60, 2000]))]
    kind, packing = random.choice([".txt", ".jsonl"]), random.choice([".gz", ".xz", ".zst"])
    lines = [json.dumps({"text": text}) + "\n" for text in texts] if kind == ".jsonl" else [f"{t}\n\n" for t in texts]
    pack, unpack = _CODECS[packing]
    good = pack("".join(lines).encode())
    place = random.randrange(1, len(good))
    if way == "cut":
        content = good[:place]
    elif way == "garbled":
        end = min(len(good), place + random.choice([1, 4, 200]))
        content = good[:place] + garbage.noise(random, end - place, end - place) + good[end:]
    else:
        content = good + random.choice([b"garbage", b"\0\0x", good[:place], garbage.noise(random, 1, 99)])
    there = "".join(lines) if way == "gone on" else unpack(good[:place]).decode(errors="ignore")
    # The block with the damage may be lost. A cut, or bytes behind the archive, cost a block of `.zst` files alone.
    if packing == ".zst":
        there = there[: len(there) - len(there) % 2**17]
    elif way == "garbled":
        there = there[: len(there) - len(there) % 2**14]
    # The last one may be cut, or hold what was garbled before it was noticed.
    sure = texts[: max(0, there.count(lines[0][-2:] if kind == ".txt" else "\n") - (way == "garbled"))]
    (folder / f"a{kind}{packing}").write_bytes(content)
    what = f"a{kind}{packing}, {len(texts)} texts: {way} at {place} of {len(good)}"
    read = partial(_read_archive, folder / f"a{kind}{packing}")
    return Trial(what, read, (), partial(_compare, texts, sure, way == "cut"))


def _gunzip_start(content: bytes) -> bytes:
    return zlib.decompressobj(31).decompress(content)


def _unxz_start(content: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(content)


def _unzst_start(content: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(content)


_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.compress, _gunzip_start),
    ".xz": (lzma.compress, _unxz_start),
    ".zst": (zstandard.ZstdCompressor(write_checksum=True).compress, _unzst_start),
}
ARCHIVE_MAKERS = {f"{way} archive": partial(_archive_trial, way=way) for way in ("cut", "garbled", "gone on")}
MAKERS = {
    maker.__name__: maker for maker in (damaged_archive, damaged_parquet, parquet_of_something_else, archive_of_files)
}
LARGE_MAKERS = {maker.__name__: maker for maker in (long_line, bomb)}
