"""A disk that takes no more: the run stops in one line, and its last checkpoint is as good as before."""

import errno
import json
import resource
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

import limbeck
from limbeck.core import disk_space, files
from limbeck.core.paths import HEARTBEAT
from limbeck.core.records import base
from limbeck.corpus import CorpusSettings
from limbeck.corpus.stored.stored_documents import store_documents
from limbeck.errors import CorpusError, OutputError, TrainingError
from limbeck.training import checkpoints, heartbeat, seals, stage, trainer
from limbeck.training.checkpoints import newest_checkpoint
from limbeck.training.disk_failures import disk_problem, loading, saving
from tests.support.together import together
from tests.support.training import assert_ends_like, failing_after, full, stage_folder

SLOW = pytest.mark.slow
#: The functions that fail, each where it is called.
PLACES = {
    "manifest": (seals, "atomic_text"),
    "model": (trainer, "save_weights"),
    "sync": (checkpoints, "seal"),
    "rename": (checkpoints, "publish"),
}


@pytest.mark.parametrize(
    "place", ["optimizer", "manifest", *(pytest.param(place, marks=SLOW) for place in ("model", "sync", "rename"))]
)
def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(recipe, whole, monkeypatch, place):
    def torn(tensors, path, **options):
        Path(path).write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")

    with monkeypatch.context() as patch:
        if place == "optimizer":
            patch.setattr(torch, "save", failing_after(4, torch.save, torn))
        else:
            owner, name = PLACES[place]
            patch.setattr(owner, name, failing_after(1, getattr(owner, name), full))
        with pytest.raises(TrainingError, match=r"The checkpoint of step 4 could not be written.*resume") as caught:
            limbeck.distill(recipe)
    message = str(caught.value)
    assert "MB free" in message
    assert ("No space left on device" in message) is (place != "optimizer")
    folder = stage_folder(recipe)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-2", "log.jsonl"]
    assert newest_checkpoint(folder, pytest.fail) is not None
    found = json.loads((Path(recipe["output"]) / "run.json").read_text())
    assert (found["status"], found["problem"].replace("--resume", "resume=True")) == ("failed", message)
    assert_ends_like(recipe, whole)


def disk_with(free, monkeypatch):
    """Let every disk have so many bytes free."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(disk_space.shutil, "disk_usage", lambda folder: usage(2 * free, free, free))


def test_a_run_without_room_is_refused_before_it_reads_text(recipe, whole, monkeypatch):
    checkpoint = stage_folder(whole) / "model.safetensors"
    needed = 3 * 3 * checkpoint.stat().st_size
    with monkeypatch.context() as patch:
        disk_with(needed // 3, patch)
        with pytest.raises(OutputError, match=r"needs about .* MB in '.*', whose disk has .*: 3 checkpoints of .* MB"):
            limbeck.distill(recipe)
    assert not (Path(recipe["output"]) / "stages").exists()
    recipe["stages"][0]["training"]["save_total_limit"] = 1
    with monkeypatch.context() as patch:
        disk_with(1.2 * needed, patch)
        assert limbeck.distill(recipe, resume=True).run.is_finished


def test_text_without_room_in_the_cache_is_refused(tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("A sentence of some words.\n\n" * 1000)
    settings = CorpusSettings(sources=[str(text)])
    disk_with(text.stat().st_size, monkeypatch)
    with pytest.raises(CorpusError, match=r"The text needs about .* whose disk has .* free.*LIMBECK_CACHE"):
        store_documents(settings, tmp_path / "cache")


def test_nothing_is_called_intact_before_the_first_checkpoint(recipe, monkeypatch):
    monkeypatch.setattr(checkpoints, "seal", full)
    with pytest.raises(TrainingError, match="Nothing of the training was saved before"):
        limbeck.distill(recipe)


@pytest.mark.parametrize("place", ["finish", "student", "record"])
def test_a_disk_that_fills_up_elsewhere(recipe, whole, monkeypatch, place):
    with monkeypatch.context() as patch:
        if place == "finish":
            patch.setattr(stage, "save_weights", full)
        elif place == "student":
            from limbeck.training import run

            patch.setattr(run, "save_student", full)
        else:
            patch.setattr(base, "atomic_text", full)
        with pytest.raises(TrainingError, match="No space left on device.*resume"):
            limbeck.distill(recipe)
    assert_ends_like(recipe, whole)


def test_a_heartbeat_that_cannot_be_written_stops_nothing(recipe, monkeypatch):
    def full_for_heartbeats(path, text, **options):
        (full if path.name == HEARTBEAT else files.atomic_text)(path, text, **options)

    monkeypatch.setattr(heartbeat, "atomic_text", full_for_heartbeats)
    assert limbeck.distill(recipe).record["status"] == "finished"


@pytest.mark.slow
def test_files_that_the_system_cuts_off(recipe, whole):
    """A limit on the size of files fails real writes, first the optimizer's moments and then the weights."""
    # The whole run has built the text too, so that it is not cut off.
    weights = (stage_folder(whole) / "model.safetensors").stat().st_size
    for limit, reason in ((weights + 4096, ""), (weights // 2, "File too large")):

        def attempt(index, console, limit=limit):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            limbeck.distill(recipe, resume=True)

        [(code, said)] = together(1, attempt)
        assert code == 1 and said.startswith("The checkpoint of step 2 could not be written") and reason in said
    assert [path.name for path in stage_folder(recipe).iterdir()] == ["log.jsonl"]
    assert_ends_like(recipe, whole)


def test_reasons_are_those_of_the_system():
    folder = Path("/")
    for error, reason in (
        (OSError(errno.ENOSPC, "x"), "No space left on device"),
        (SafetensorError("Error while serializing: I/O error: File too large (os error 27)"), "File too large"),
        (RuntimeError("CUDA error: unspecified launch failure\nmore"), "unspecified launch failure"),
        (RuntimeError(), "RuntimeError"),
    ):
        with pytest.raises(TrainingError, match=reason), saving("The file", folder):
            raise error
        with pytest.raises(OutputError), loading(folder):
            raise error
    with pytest.raises(KeyError), saving("The file", folder):
        raise KeyError("x")
    assert disk_problem(OSError(errno.EDQUOT, "x"), folder) is not None
    assert disk_problem(FileNotFoundError(errno.ENOENT, "x"), folder) is None
    assert disk_problem(ValueError(), folder) is None
