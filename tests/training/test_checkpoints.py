"""Checkpoints: whole or absent, damaged ones skipped by name, never more than asked for, and no code in them."""

import json
import os
import pickle
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import limbeck
from limbeck.training import checkpoints
from limbeck.training.checkpoints import STAGING
from limbeck.training.seals import MANIFEST, file_damage, find_damage, seal
from limbeck.training.weights import load_weights, save_weights
from tests.support.models import tiny_model
from tests.support.training import assert_ends_like, assert_equal, elsewhere, kill_at, log_of, record_of, stage_folder
from tests.training.conftest import refused


def write_checkpoint(folder, step, content="weights"):
    grown = checkpoints.prepare_staging(folder) / f"checkpoint-{step}"
    (grown / "parts").mkdir(parents=True)
    (grown / "model.safetensors").write_text(content)
    (grown / "parts" / "optimizer.pt").write_text("moments")
    seal(grown, {"step": step})
    return checkpoints.publish(grown, folder)


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_checkpoint_appears_whole(tmp_path):
    found = write_checkpoint(tmp_path, 3)
    assert names(tmp_path) == ["checkpoint-3"]
    manifest = json.loads((found / MANIFEST).read_text())
    assert manifest["step"] == 3
    assert set(manifest["files"]) == {"model.safetensors", "parts/optimizer.pt"}
    assert find_damage(found) is None


#: By what is said of them, names that a manifest lists.
LISTED = {"lies outside": ("../../run.json", "/etc/passwd"), "cannot be read": ("a\0b", "x" * 5000, "\x1b[2J")}
NO_FILES = os.mkfifo, os.mkdir, partial(os.symlink, "/dev/zero")


def harm(path, content):
    """Write other content, or put what is no file in the place of one, or nothing."""
    if isinstance(content, str):
        path.write_text(content)
        return
    path.unlink()
    if content is not None:
        content(path)


@pytest.mark.parametrize(
    ("place", "content", "named"),
    [
        ("model.safetensors", "weighty", "model.safetensors"),
        ("model.safetensors", "weigh", "model.safetensors"),
        ("parts/optimizer.pt", None, "optimizer.pt"),
        (MANIFEST, None, MANIFEST),
        (MANIFEST, '{"step": 4, "fil', MANIFEST),
        (MANIFEST, '{"files": {}}', MANIFEST),
        (MANIFEST, '{"files": {"model.safetensors": 7}}', "model.safetensors"),
        *((MANIFEST, json.dumps({"files": {name: {}}}), said) for said, names in LISTED.items() for name in names),
        *(("model.safetensors", make, "is not a file") for make in NO_FILES),
    ],
)
def test_a_damaged_one_is_skipped_and_named(tmp_path, place, content, named):
    good, bad = write_checkpoint(tmp_path, 2), write_checkpoint(tmp_path, 4)
    harm(bad / place, content)
    lines = []
    assert checkpoints.newest_checkpoint(tmp_path, lines.append) == good
    assert len(lines) == 1
    assert str(bad) in lines[0] and named in lines[0] and lines[0].isprintable()
    harm(good / place, content)
    assert checkpoints.newest_checkpoint(tmp_path, lines.append) is None
    assert checkpoints.newest_checkpoint(tmp_path / "nowhere", lines.append) is None


def test_steps_are_compared_as_numbers_and_kept_up_to_the_limit(tmp_path):
    for step in (8, 9, 10, 11):
        write_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-final").mkdir()
    checkpoints.keep_newest(tmp_path, 11, 2)
    assert [name for name in names(tmp_path) if name[-1].isdigit()] == ["checkpoint-10", "checkpoint-11"]
    checkpoints.keep_newest(tmp_path, 11, None)
    write_checkpoint(tmp_path, 7)  # The run went on from an older one: those of later steps were damaged.
    checkpoints.keep_newest(tmp_path, 7, 2)
    assert [name for name in names(tmp_path) if name[-1].isdigit()] == ["checkpoint-7"]


class Killed(BaseException):
    pass


def test_a_kill_while_one_is_replaced_loses_neither(tmp_path, monkeypatch):
    """Between the two renames the old one is aside and the new one not yet there."""
    write_checkpoint(tmp_path, 5, "old")
    rename, calls = Path.rename, []

    def killed(self, target):
        calls.append(self)
        if len(calls) == 2:
            raise Killed
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(Killed):
            write_checkpoint(tmp_path, 5, "new")
    assert not (tmp_path / "checkpoint-5").exists()
    checkpoints.remove_leftovers(tmp_path)
    assert checkpoints.newest_checkpoint(tmp_path, pytest.fail) == tmp_path / "checkpoint-5"
    assert not (tmp_path / STAGING).exists()
    write_checkpoint(tmp_path, 5, "new")
    assert (tmp_path / "checkpoint-5" / "model.safetensors").read_text() == "new"


def test_a_kill_while_one_is_removed_leaves_no_part_under_its_name(tmp_path, monkeypatch):
    found = write_checkpoint(tmp_path, 5)

    def killed(path, **options):
        if Path(path).exists():
            (Path(path) / "model.safetensors").unlink()
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            checkpoints.discard(found)
    assert names(tmp_path) == [STAGING]
    checkpoints.remove_leftovers(tmp_path)
    assert names(tmp_path) == []


def test_a_run_goes_on_from_the_newest_whole_one_to_the_same_weights_and_says_what_differs(killed, whole, capsys):
    folder = stage_folder(killed)
    assert names(folder) == ["checkpoint-2", "checkpoint-4", "log.jsonl"]
    weights = folder / "checkpoint-4" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1  # One bit.
    weights.write_bytes(content)
    (folder / STAGING / "checkpoint-5").mkdir(parents=True)
    manifest = folder / "checkpoint-2" / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "device": "Abacus", "threads": 77}))
    assert_ends_like(killed, whole)
    printed = capsys.readouterr().out
    assert "checkpoint-4' is damaged and skipped: 'model.safetensors' has changed" in printed
    assert "device (Abacus, now cpu), number of threads (77, now 1)" in printed and "precision" not in printed


def test_links_and_files_where_checkpoints_belong_stop_nothing(killed, whole, tmp_path, capsys):
    folder, target = stage_folder(killed), tmp_path / "elsewhere"
    target.mkdir()
    (target / "kept").touch()
    (folder / "checkpoint-999").symlink_to(target)
    (folder / STAGING).write_text("no folder")
    (Path(killed["output"]) / "student").symlink_to(target)
    assert_ends_like(killed, whole)
    printed = capsys.readouterr().out
    assert "checkpoint-999' is damaged and skipped: it is a link" in printed
    assert names(target) == ["kept"] and not (Path(killed["output"]) / "student").is_symlink()


class Bomb:
    def __reduce__(self):
        return os.mkdir, (os.environ["BOMB"],)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_pickle_with_code_is_not_run(killed, tmp_path, monkeypatch, name):
    """Even one that the manifest vouches for."""
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    checkpoint = stage_folder(killed) / "checkpoint-4"
    assert (checkpoint / name).is_file()
    torch.save({"state": Bomb()}, checkpoint / name)
    (checkpoint / MANIFEST).unlink()
    seal(checkpoint, {"step": 4})
    with refused("checkpoint-4' cannot be resumed: Weights only load failed"):
        limbeck.distill(killed, resume=True)
    assert not (tmp_path / "exploded").exists()
    with pytest.raises(FileNotFoundError):  # The bomb is one.
        monkeypatch.setenv("BOMB", str(tmp_path / "no" / "folder"))
        pickle.loads(pickle.dumps(Bomb()))


def test_weights_are_safetensors_alone(killed_once):
    folder = stage_folder(killed_once)
    assert set(names(folder / "checkpoint-4")) == {
        "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "progress.json",
        MANIFEST,
    }  # fmt: skip
    optimizer = torch.load(folder / "checkpoint-4" / "optimizer.pt", weights_only=True)
    moments = {name for state in optimizer["state"].values() for name in state}
    assert moments == {"step", "exp_avg", "exp_avg_sq"}


def test_a_finished_stage_that_is_damaged_is_trained_again(recipe, whole, capsys):
    shutil.copytree(whole["output"], recipe["output"])
    weights = stage_folder(recipe) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    Path(recipe["output"], "run.json").write_text(json.dumps({**record_of(recipe), "status": "running"}))
    again = assert_ends_like(recipe, whole)
    assert "its files are damaged ('model.safetensors' has" in capsys.readouterr().out
    assert file_damage(weights, again.record["stages"][0]["weights"]) is None


@pytest.mark.slow
def test_a_schedule_that_follows_the_held_out_loss_is_resumed(recipe, tmp_path):
    """With one checkpoint kept, and none for being the best."""
    recipe["stages"][0]["training"] |= {
        "lr_scheduler_type": "reduce_lr_on_plateau",
        "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5, "threshold": 10.0, "threshold_mode": "abs"},
        "metric_for_best_model": "eval_loss",
        "save_total_limit": 1,
        "eval_steps": 2,
        "max_steps": 9,
        "learning_rate": 1e-2,
    }
    straight = elsewhere(recipe, tmp_path / "straight")
    limbeck.distill(straight)
    assert len({entry["learning_rate"] for entry in log_of(straight) if "learning_rate" in entry}) > 2
    kill_at(recipe, 7)
    assert [path.name for path in Path(recipe["output"]).rglob("checkpoint-*")] == ["checkpoint-6"]
    assert_ends_like(recipe, straight)


def test_weights_that_share_memory_are_written_once_and_read_back(tmp_path):
    model, other = (tiny_model("bert", head="masked_lm", seed=seed) for seed in (0, 5))
    path = tmp_path / "model.safetensors"
    save_weights(model, path, None)
    with safe_open(path, "pt") as weights:
        assert weights.metadata() == {"format": "pt"}, "names of the others, in an order that no process repeats"
        names = set(weights.keys())
    assert names == {name for name, _ in model.named_parameters()} | {name for name, _ in model.named_buffers()} & names
    assert names < set(model.state_dict())
    load_weights(other, path)
    assert_equal(other.state_dict(), model.state_dict())
