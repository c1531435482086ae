"""One run at a time in a folder; a dead one never blocks the next."""

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from transformers import TrainerCallback

import limbeck
from limbeck.api import distilling
from limbeck.core import folder_lock as lock_of_folder
from limbeck.core.folder_lock import folder_lock, holder, holder_lives, is_locked
from limbeck.core.paths import LOCK
from limbeck.errors import CorpusError
from tests.support.together import fork
from tests.training.conftest import refused


@pytest.fixture
def other_process(tmp_path):
    """The number of another process that has the folder, and has a worker; a function ends it."""
    reading, writing = os.pipe()

    def hold():
        with folder_lock(tmp_path):
            worker = os.fork()
            if worker:  # It outlives a killed run, as a worker of a data loader may.
                os.write(writing, str(worker).encode())
            time.sleep(60)

    process = fork(hold)
    worker = int(os.read(reading, 20))

    def end():
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)

    yield process, end
    with suppress(ProcessLookupError):
        end()
    os.kill(worker, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch):
    monkeypatch.setattr(lock_of_folder, "_PATIENCE_SECONDS", 0.2)


def test_another_run_is_named_with_host_process_and_time(tmp_path, other_process, tiny_recipe):
    tiny_recipe["output"] = str(tmp_path)
    assert is_locked(tmp_path)
    assert holder_lives(holder(tmp_path))
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with refused(f"process {other_process[0]} on {socket.gethostname()}, since 20"):
            limbeck.distill(tiny_recipe, **options)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


@pytest.mark.parametrize("option", ["resume", "overwrite"])
def test_a_run_that_is_going_on_is_refused_before_anything_is_planned(
    tmp_path, other_process, tiny_recipe, monkeypatch, option
):
    monkeypatch.setattr(distilling, "_plan", pytest.fail)
    tiny_recipe["output"] = str(tmp_path)
    with refused("is in use by another run"):
        limbeck.distill(tiny_recipe, **{option: True})


def test_a_dead_run_does_not_block_even_if_its_workers_live(tmp_path, other_process):
    other_process[1]()
    assert not is_locked(tmp_path)
    assert not holder_lives(holder(tmp_path))
    with folder_lock(tmp_path):
        assert holder(tmp_path)["pid"] == os.getpid()


def test_one_process_cannot_have_a_folder_twice(tmp_path):
    with folder_lock(tmp_path):
        (tmp_path / "elsewhere").symlink_to(tmp_path)

        def enter(folder):
            with refused(f"process {os.getpid()}"), folder_lock(folder):
                pass

        enter(tmp_path)
        with ThreadPoolExecutor() as threads:
            threads.submit(enter, tmp_path / "elsewhere").result()
        # Asking must not unlock: a process loses its lock with any descriptor of the file that it closes.
        assert is_locked(tmp_path) and holder(tmp_path)["pid"] == os.getpid()
        asking = fork(lambda: os._exit(is_locked(tmp_path)))
        assert os.WEXITSTATUS(os.waitpid(asking, 0)[1]) == 1
    assert not is_locked(tmp_path)


def test_a_process_has_a_folder_until_its_lock_is_released(tmp_path, monkeypatch):
    # Another run of the process that locked the file before would lose its lock when the first one closes the file.
    path = tmp_path.resolve() / LOCK
    close = os.close
    held_at_close = []

    def note_and_close(descriptor):
        held_at_close.append(path in lock_of_folder._held)
        close(descriptor)

    with monkeypatch.context() as patch, folder_lock(tmp_path):
        patch.setattr(os, "close", note_and_close)
    assert held_at_close == [True]
    assert path not in lock_of_folder._held


def test_a_folder_is_free_even_if_the_system_fails_to_close_its_lock(tmp_path, monkeypatch):
    close = os.close

    def close_and_fail(descriptor):
        close(descriptor)
        raise OSError(errno.EIO, "the note could not be written")

    with pytest.raises(OSError, match="note"), monkeypatch.context() as patch, folder_lock(tmp_path):
        patch.setattr(os, "close", close_and_fail)
    with folder_lock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_a_file_system_without_locks_goes_by_the_last_holder(tmp_path, monkeypatch):
    def unsupported(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", unsupported)
    started = psutil.Process().create_time()
    here = {"host": socket.gethostname(), "pid": os.getpid(), "started": started, "since": "2030-01-01T00:00:00+00:00"}
    (tmp_path / LOCK).write_text(json.dumps(here))
    assert is_locked(tmp_path) is None
    with refused("since 2030-01-01"), folder_lock(tmp_path):
        pass
    (tmp_path / LOCK).write_text(json.dumps({**here, "started": started - 1000}))  # The number was used again.
    with folder_lock(tmp_path):
        pass
    for content in ("", "[1]", '{"host": 3, "pid": "x"}', json.dumps({**here, "pid": "many"})):
        (tmp_path / LOCK).write_text(content)
        with folder_lock(tmp_path):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()


def test_an_overwritten_run_that_is_killed_half_way_can_be_overwritten_again(recipe, whole, monkeypatch):
    shutil.copytree(whole["output"], recipe["output"])
    recipe["stages"][0]["training"]["max_steps"] = 1
    removed, original = [], shutil.rmtree

    def killed(path, **options):
        removed.append(path)
        if len(removed) == 2:
            raise KeyboardInterrupt
        return original(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            limbeck.distill(recipe, overwrite=True)
    assert removed
    limbeck.distill(recipe, overwrite=True)
    assert Path(recipe["output"], "student", "model.safetensors").is_file()


def test_what_a_run_leaves_that_was_killed_at_once_is_no_obstacle(recipe):
    output = Path(recipe["output"])
    recipe |= {"stages": [], "corpus": None}
    for left in ("recipe.yaml.partial", "run.json.partial", "heartbeat.json.partial", LOCK):
        output.mkdir()
        (output / left).write_text("{")
        assert limbeck.distill(recipe).record["status"] == "finished"
        shutil.rmtree(output)


def test_what_a_run_leaves_that_failed_before_its_first_step_is_no_obstacle(recipe):
    class Wrong(TrainerCallback):
        def on_train_begin(self, *arguments, **options):
            raise ValueError("a mistake of the user's")

    with pytest.raises(ValueError, match="a mistake"):
        limbeck.distill(recipe, callbacks=[Wrong()])
    folder = Path(recipe["output"])
    assert list((folder / "stages").iterdir()), "its folder is there, and empty"
    recipe["seed"] = 5
    assert limbeck.distill(recipe).record["status"] == "finished"
    # A run that has trained keeps its folder.
    recipe["seed"] = 6
    with refused("is not empty"):
        limbeck.distill(recipe)


def test_a_mistake_that_is_found_after_the_claim_leaves_no_new_folder(recipe, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("word")
    recipe["corpus"] |= {"sources": [str(short)], "minimum_tokens": 9}
    folder = Path(recipe["output"])
    with refused("no block of text to train on", CorpusError):
        limbeck.distill(recipe)
    assert not folder.exists()
    # A folder that was there before stays.
    folder.mkdir()
    with refused("no block of text to train on", CorpusError):
        limbeck.distill(recipe)
    assert folder.is_dir()


def test_a_damaged_recipe_is_said(recipe, whole):
    shutil.copytree(whole["output"], recipe["output"])
    saved = Path(recipe["output"]) / "recipe.yaml"
    for harm in (lambda: saved.write_text("- {"), saved.unlink):
        harm()
        with refused("missing or damaged"):
            limbeck.distill(recipe, resume=True)


@pytest.mark.parametrize("target", [LOCK, "elsewhere"])
def test_a_link_in_the_place_of_the_lock_is_refused_and_nothing_is_written_through_it(tmp_path, target):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / target)
    with refused("cannot be written: Too many levels of symbolic links"), folder_lock(tmp_path):
        pass
    assert (tmp_path / "elsewhere").read_text() == "mine"
