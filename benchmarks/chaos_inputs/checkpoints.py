"""Checkpoints and finished stages that are not as they were written: recognised, skipped with a line, never taken."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.chaos_inputs import garbage
from benchmarks.chaos_inputs.scene import Scene
from benchmarks.chaos_inputs.trial import COUNTED, SILENT, Trial

from limbeck.core.files import read_json
from limbeck.training.checkpoints import newest_checkpoint
from limbeck.training.finished_stage import DONE, load_finished
from limbeck.training.seals import MANIFEST, seal
from limbeck.training.trainer import WEIGHTS


def _checkpoint(folder: Path, step: int) -> Path:
    """A whole one, of a few small files."""
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    for name in ("model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state.pth"):
        (path / name).write_bytes(f"{name} of step {step}".encode() * 20)
    seal(path, {"step": step})
    return path


def _chosen(folder: Path, good: Path) -> str:
    """The older one that is whole is taken, and a line of the newer one is said."""
    lines: list[str] = []
    found = newest_checkpoint(folder, lines.append)
    return COUNTED if found == good and len(lines) == 1 and "\n" not in lines[0] else SILENT


def _trial(folder: Path, good: Path, what: str) -> Trial:
    return Trial(what, partial(_chosen, folder, good), (), str)


def damaged_file(random: Random, scene: Scene, folder: Path) -> Trial:
    good, bad = _checkpoint(folder, 2), _checkpoint(folder, 4)
    name = random.choice(["model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state.pth"])
    path, way = (
        bad / name,
        random.choice(["changed", "changed", "gone", "folder", "pipe", "loop", "empty", "link out", "device"]),
    )
    content = path.read_bytes()
    path.unlink()
    if way == "changed":
        path.write_bytes(garbage.damaged(random, content))
    elif way == "folder":
        path.mkdir()
    elif way == "pipe":
        os.mkfifo(path)
    elif way == "loop":
        path.symlink_to(path)
    elif way == "empty":
        path.touch()
    elif way == "link out":
        path.symlink_to("/etc/passwd")
    elif way == "device":
        path.symlink_to("/dev/zero")
    return _trial(folder, good, f"{name}: {way}")


def damaged_manifest(random: Random, scene: Scene, folder: Path) -> Trial:
    good, bad = _checkpoint(folder, 2), _checkpoint(folder, 4)
    path = bad / MANIFEST
    written = path.read_bytes()
    path.write_bytes(random.choice([
        b"", b"{", b"[]", b"null", b"3", b"{}", b'{"files": {}}', b'{"files": []}', b'{"files": 3}',
        garbage.noise(random),
        b"\xff" + written, garbage.nested_json(random, 100_000).encode(), written[: random.randrange(len(written) - 3)],
    ]))  # fmt: skip
    return _trial(folder, good, f"manifest {path.read_bytes()[:20]!r}")


def manifest_that_lies(random: Random, scene: Scene, folder: Path) -> Trial:
    good, bad = _checkpoint(folder, 2), _checkpoint(folder, 4)
    manifest = json.loads((bad / MANIFEST).read_text(encoding="utf-8"))
    name = random.choice(list(manifest["files"]))
    way = random.randrange(6)
    if way == 0:
        manifest["files"][name] = random.choice(
            [None, 3, [], {}, "x", {"bytes": 1}, {"sha256": "x"}, {"bytes": "1", "sha256": 3}]
        )
    elif way == 1:
        manifest["files"][name]["bytes"] = random.choice([0, -1, 1e308, None, "x", [], float("nan")])
    elif way == 2:
        manifest["files"][name]["sha256"] = random.choice(["", None, 3, [], "0" * 64, garbage.control_text(random)])
    else:
        strange = random.choice([
            "../../../etc/passwd", "/etc/passwd", "a\0b", "x" * 5000, "", ".", "..", garbage.control_text(random),
            "gone", "a/../../b",
        ])  # fmt: skip
        manifest["files"] = {strange: manifest["files"][name], **manifest["files"]}
    (bad / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return _trial(folder, good, f"manifest {way}: {str(manifest['files'])[:40]}")


def code_in_a_checkpoint(random: Random, scene: Scene, folder: Path) -> Trial:
    """A pickle in the place of a file: its hash is another."""
    good, bad = _checkpoint(folder, 2), _checkpoint(folder, 4)
    name = random.choice(["optimizer.pt", "rng_state.pth"])
    (bad / name).write_bytes(pickle.dumps((os.getcwd, garbage.word(random))))
    return _trial(folder, good, f"a pickle as {name}")


def strange_names(random: Random, scene: Scene, folder: Path) -> Trial:
    """What is called nearly like a checkpoint is none; a file of its name is a damaged one."""
    good = _checkpoint(folder, 2)
    name = random.choice(["checkpoint-4", "checkpoint-99999999999999999999", "checkpoint-007"])
    (folder / name).write_bytes(garbage.noise(random))
    for other in ("checkpoint-", "checkpoint--4", "checkpoint-4x", "checkpoint-1e9", "checkpoint-4.partial"):
        (folder / other).mkdir()
    return _trial(folder, good, f"a file {name}")


def finished_stage(random: Random, scene: Scene, folder: Path) -> Trial:
    """A stage that says it is finished and is not as it was: trained again, with a line."""
    stage = scene.copy_of(next((scene.run / "stages").iterdir()), folder)
    way = random.choice(["weights", "gone", "record", "facts"])
    if way == "weights":
        (stage / WEIGHTS).write_bytes(garbage.damaged(random, (stage / WEIGHTS).read_bytes()))
    elif way == "gone":
        (stage / WEIGHTS).unlink()
    elif way == "record":
        (stage / DONE).write_bytes(
            random.choice([b"", b"{", b"[]", b"3", garbage.noise(random), garbage.nested_json(random, 50_000).encode()])
        )
    else:
        record: dict[str, Any] = read_json(stage / DONE)
        record["weights"] = random.choice([None, 3, [], {}, {"bytes": -1}, {**record["weights"], "sha256": "0" * 64}])
        (stage / DONE).write_text(json.dumps(record), encoding="utf-8")

    def take_up() -> str:
        lines: list[str] = []
        found = load_finished(stage, scene.student, lines.append, limit=None)
        return COUNTED if found is None and len(lines) == 1 and "\n" not in lines[0] else SILENT

    return Trial(f"finished stage: {way}", take_up, (), str)


def no_checkpoint_left(random: Random, scene: Scene, folder: Path) -> Trial:
    """All are damaged: none is taken, and a line is said of each."""
    bad = [_checkpoint(folder, step) for step in (2, 4, 6)]
    for path in bad:
        if random.random() < 0.5:
            (path / MANIFEST).unlink()
        else:
            shutil.rmtree(path)
            path.mkdir()

    def choose() -> str:
        lines: list[str] = []
        found = newest_checkpoint(folder, lines.append)
        return COUNTED if found is None and len(lines) == 3 else SILENT

    return Trial("three damaged ones", choose, (), str)


MAKERS = {
    maker.__name__: maker
    for maker in (
        damaged_file, damaged_manifest, manifest_that_lies, code_in_a_checkpoint, strange_names, finished_stage,
        no_checkpoint_left,
    )
}  # fmt: skip
