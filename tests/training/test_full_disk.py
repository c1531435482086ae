"""A disk that takes no more: the run stops in one line, and its last checkpoint is as good as before."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

import limbeck
from limbeck.core import files, records
from limbeck.core.files import HEARTBEAT
from limbeck.errors import OutputError, TrainingError
from limbeck.training import checkpoints, record
from limbeck.training.checkpoints import disk_problem, loading, newest_checkpoint, saving
from tests.support.training import assert_equal, stage_folder, student_of


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def assert_goes_on(recipe, whole):
    """The run is resumed from what is there, to the weights of one that met no full disk."""
    limbeck.distill(recipe, resume=True)
    assert_equal(student_of(recipe), student_of(whole))


SLOW = pytest.mark.slow
#: The functions of `checkpoints` that fail.
PLACES = {"manifest": "atomic_text", "model": "save_weights", "sync": "seal", "rename": "publish"}


@pytest.mark.parametrize(
    "place", ["optimizer", "manifest", *(pytest.param(place, marks=SLOW) for place in ("model", "sync", "rename"))]
)
def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(recipe, whole, monkeypatch, place):
    def after_the_first(function, failure):
        calls = []

        def call(*arguments, **options):
            calls.append(arguments)
            return function(*arguments, **options) if len(calls) == 1 else failure(*arguments, **options)

        return call

    def torn(tensors, path, **options):
        Path(path).write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")

    with monkeypatch.context() as patch:
        if place == "optimizer":
            original, calls = torch.save, []

            def save(value, path, **options):
                calls.append(path)
                return original(value, path, **options) if len(calls) < 5 else torn(value, path)

            patch.setattr(torch, "save", save)
        else:
            name = PLACES[place]
            patch.setattr(checkpoints, name, after_the_first(getattr(checkpoints, name), full))
        with pytest.raises(TrainingError, match=r"The checkpoint of step 4 could not be written.*--resume") as caught:
            limbeck.distill(recipe)
    message = str(caught.value)
    assert "\n" not in message and "MB free" in message
    assert ("No space left on device" in message) is (place != "optimizer")
    folder = stage_folder(recipe)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-2", "log.jsonl"]
    assert newest_checkpoint(folder, pytest.fail) is not None
    found = json.loads((Path(recipe["output"]) / "run.json").read_text())
    assert (found["status"], found["problem"]) == ("failed", message)
    assert_goes_on(recipe, whole)


@pytest.mark.parametrize("place", ["finish", "student", "record"])
def test_a_disk_that_fills_up_elsewhere(recipe, whole, monkeypatch, place):
    with monkeypatch.context() as patch:
        if place == "finish":
            patch.setattr(checkpoints, "save_weights", full)
        elif place == "student":
            from limbeck.training import run

            patch.setattr(run, "save_student", full)
        else:
            patch.setattr(records, "atomic_text", full)
        with pytest.raises(TrainingError, match="No space left on device.*--resume") as caught:
            limbeck.distill(recipe)
    assert "\n" not in str(caught.value)
    assert_goes_on(recipe, whole)


def test_a_heartbeat_that_cannot_be_written_stops_nothing(recipe, monkeypatch):
    def full_for_heartbeats(path, text, **options):
        (full if path.name == HEARTBEAT else files.atomic_text)(path, text, **options)

    monkeypatch.setattr(record, "atomic_text", full_for_heartbeats)
    assert limbeck.distill(recipe).record["status"] == "finished"


LIMITED = """
import json, resource, signal, sys
import torch
from pathlib import Path
from limbeck.api import distill
torch.set_num_threads(1)
assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # As Python does.
recipe = json.loads(Path(sys.argv[1]).read_text())
for limit in map(int, sys.argv[2:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        distill(recipe, resume=True)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_files_that_the_system_cuts_off(recipe, whole, tmp_path):
    """A limit on the size of files fails real writes, first the optimizer's moments and then the weights."""
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe))
    # The whole run has built the text too, so that it is not cut off.
    weights = (stage_folder(whole) / "model.safetensors").stat().st_size
    command = [sys.executable, "-c", LIMITED, str(path), str(weights + 4096), str(weights // 2)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2, done.stdout + done.stderr
    assert all(line.startswith("TrainingError The checkpoint of step 2 could not be written") for line in lines)
    assert "File too large" in lines[1]
    assert [path.name for path in stage_folder(recipe).iterdir()] == ["log.jsonl"]
    assert_goes_on(recipe, whole)


def test_reasons_are_those_of_the_system():
    folder = Path("/")
    for error, reason in (
        (OSError(errno.ENOSPC, "x"), "No space left on device"),
        (SafetensorError("Error while serializing: I/O error: File too large (os error 27)"), "File too large"),
        (RuntimeError("CUDA error: unspecified launch failure\nmore"), "unspecified launch failure"),
        (RuntimeError(), "RuntimeError"),
    ):
        with pytest.raises(TrainingError, match=reason) as caught, saving("The file", folder):
            raise error
        assert "\n" not in str(caught.value)
        with pytest.raises(OutputError) as caught, loading(folder):
            raise error
        assert "\n" not in str(caught.value)
    with pytest.raises(KeyError), saving("The file", folder):
        raise KeyError("x")
    assert disk_problem(OSError(errno.EDQUOT, "x"), folder) is not None
    assert disk_problem(FileNotFoundError(errno.ENOENT, "x"), folder) is None
    assert disk_problem(ValueError(), folder) is None
