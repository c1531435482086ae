"""Text that is damaged or hostile, built to a corpus or streamed: repaired and counted, or refused."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.reading import PACKING, build, sentence, text_of_documents, trial_of_file, trial_of_source
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import EQUAL, SILENT, Trial


def bytes_of_any_kind(random: Random, scene: Scene, folder: Path) -> Trial:
    content = random.choice([
        garbage.noise(random, 40), b"\x7fELF" + bytes(300), b"\x89PNG\r\n\x1a\n" + garbage.noise(random, 100),
        text_of_documents(random).encode("utf-16-le"), b"\xff\xfe" + text_of_documents(random).encode("utf-16-le"),
        bytes(500), b"\xff" * 50,
        "Кодировка, которая не UTF-8".encode("koi8-r") * 3, b"",
    ])  # fmt: skip
    packing = random.choice(list(PACKING))
    name = f"a{random.choice(['.txt', '.md', '.rst', '.jsonl', '.parquet'])}{packing}"
    return trial_of_file(random, scene, folder, repr(content[:12]), name, PACKING[packing](content))


def bytes_between_words(random: Random, scene: Scene, folder: Path) -> Trial:
    bad = random.choice(
        [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xe9", b"\x80", b"\xf4\x90\x80\x80"]
    )
    content = text_of_documents(random).encode().replace(b" ", b" " + bad, random.randint(1, 3))
    name = random.choice(["a.txt", "a.md", "a.rst"])
    return trial_of_file(random, scene, folder, f"{bad!r} between words", name, content)


def control_characters(random: Random, scene: Scene, folder: Path) -> Trial:
    bad = random.choice("\x00\x01\x07\x08\x1b\x7f\x9b\x80")
    name = random.choice(["a.txt", "a.md", "a.rst", "a.jsonl"])
    # Of a page the prose alone is read: the first paragraph may be none.
    times = -1 if name.endswith(("md", "rst")) else random.randint(1, 5)
    text = text_of_documents(random).replace(" ", f" {bad}", times)
    content = json.dumps({"text": text}) if name == "a.jsonl" else text
    return trial_of_file(random, scene, folder, f"{bad!r} between words", name, content.encode())


def lines_that_are_no_json(random: Random, scene: Scene, folder: Path) -> Trial:
    bad = random.choice([
        "{", "", "x", "nul", '{"text": "a"', "{'text': 'a'}", '{"text": "\t"}', '{"text": 01}', "[", '"', "{}{}",
        "NaN,",
        '{"text": "a",}', '{"text": "\\x"}', garbage.nested_json(random, 100_000), garbage.nested_json(random, 3000),
        '{"text": ' + "[" * 100_000, "9" * 10_000, '{"a":' * 2000,
    ])  # fmt: skip
    lines = [json.dumps({"text": sentence(random)}) for _ in range(6)]
    lines.insert(random.randrange(6), bad or "{]")
    return trial_of_file(random, scene, folder, f"line {bad[:30]!r}", "a.jsonl", "\n".join(lines).encode())


def rows_of_wrong_types(random: Random, scene: Scene, folder: Path) -> Trial:
    bad: Any = random.choice([
        {"text": 3}, {"text": None}, {"text": []}, {"text": {"a": 1}}, {"text": True}, {"text": ""}, {"text": " \n"},
        {},
        {"Text": "x"}, {"body": "x"}, [], 3, "text", None, {"text": ["a"]}, {"text": 1e308}, {"text": float("nan")},
        {"text": 10**3000}, {garbage.control_text(random): "x"}, {"x" * 100_000: 1}, {"text": "\ud800"},
        {"text": "\0\0"},
    ])  # fmt: skip
    lines = [json.dumps({"text": sentence(random)}) for _ in range(6)]
    lines.insert(random.randrange(6), json.dumps(bad))
    return trial_of_file(random, scene, folder, f"row {str(bad)[:40]!r}", "a.jsonl", "\n".join(lines).encode())


def key_twice(random: Random, scene: Scene, folder: Path) -> Trial:
    """JSON in which the text stands twice: the last is meant, as all readers of JSON have it."""
    texts = [sentence(random) for _ in range(5)]
    (folder / "once.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    twice = folder / "twice.jsonl"
    twice.write_text("\n".join(f'{{"text": "{sentence(random)}", "text": "{text}"}}' for text in texts))
    wanted = build(str(folder / "once.jsonl"), scene, folder).train["input_ids"]

    def same(corpus: Any) -> str:
        return EQUAL if list(corpus.train["input_ids"]) == list(wanted) else SILENT

    return Trial("a.jsonl: text twice", partial(build, str(twice), scene, folder), accepted=same)


def strange_name(random: Random, scene: Scene, folder: Path) -> Trial:
    """A good file under a name that changes what a terminal shows, beside a bad one."""
    name = random.choice(
        ["a\nb", "a\x1b[2Jb", "a\u202eb", "-rf", "[bold]a", "a\rb", " ", "a\udc80", "é" * 100, "a'b\"c"]
    )
    place = folder / "text"
    place.mkdir()
    (place / f"{name}.txt").write_bytes(b"\0" * 100)
    (place / "good.txt").write_text(text_of_documents(random))
    return trial_of_source(random, scene, folder, f"a file {name!r}", place)


def no_ordinary_file(random: Random, scene: Scene, folder: Path) -> Trial:
    path = folder / "text.txt"
    way = random.choice(["pipe", "loop", "nothing", "device", "empty folder", "folder of others", "socket", "missing"])
    source: Path | str = path
    if way == "pipe":
        os.mkfifo(path)
    elif way == "loop":
        path.symlink_to(path)
    elif way == "nothing":
        path.symlink_to(folder / "gone")
    elif way == "device":
        path.symlink_to("/dev/zero")
    elif way == "empty folder":
        path.mkdir()
    elif way == "folder of others":
        path.mkdir()
        (path / "a.pdf").write_bytes(b"%PDF")
        os.mkfifo(path / "b.txt")
    elif way == "socket":
        os.mknod(path, 0o140644)
    return trial_of_source(random, scene, folder, way, source)


def no_source(random: Random, scene: Scene, folder: Path) -> Trial:
    source = random.choice([
        "", " ", "\0", "a\0b", garbage.control_text(random), garbage.markup_text(random), "x" * 5000, "**/[",
        f"{folder}/**/*.nothing-here",
        "~no-such-user/x.txt", "hub:", "hub:a/b/c/d", "hub:../..", "file:///nowhere/a.txt", "nothing://a/b.txt", "://",
        "http://[",
        "installed-docs:/nowhere", "installed-doc", f"{folder}/*.txt", f"./{garbage.word(random)}.txt", "-",
        "/dev/null",
        "memory://nothing.txt", "[]", "{a,b}.txt", "?", "hub:a/b@", "hub:a/b:c@d#e",
    ])  # fmt: skip
    trial = trial_of_source(random, scene, folder, f"source {source[:40]!r}", source)
    return Trial(trial.what, trial.act)


def mark(random: Random, scene: Scene, folder: Path) -> Trial:
    """A byte order mark in front, and the ends of lines of other systems: no part of the text."""
    text = text_of_documents(random)
    plain = folder / "plain.txt"
    plain.write_text(text, encoding="utf-8")
    other = folder / "other.txt"
    other.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    wanted = build(str(plain), scene, folder).train["input_ids"]

    def same(corpus: Any) -> str:
        return EQUAL if list(corpus.train["input_ids"]) == list(wanted) and not corpus.report.counts else SILENT

    return Trial("a byte order mark and CR LF", partial(build, str(other), scene, folder), accepted=same)


MAKERS = {
    maker.__name__: maker
    for maker in (
        bytes_of_any_kind, bytes_between_words, control_characters, lines_that_are_no_json, rows_of_wrong_types,
        key_twice, strange_name, no_ordinary_file,
        no_source, mark,
    )
}  # fmt: skip
