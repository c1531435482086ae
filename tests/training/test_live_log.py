"""A stage's log while it is trained: every line as it is logged, with clock and tokens, through kills and resumes."""

import errno
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import limbeck
from limbeck.training import stage
from limbeck.training.checkpoints import MANIFEST, seal
from limbeck.training.record import LOG, Heartbeat, LiveLog, status_of
from limbeck.training.trainer import PROGRESS
from tests.support.training import AtStep

CLOCKS = ("seconds", "runtime", "per_second")


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def without_clocks(entries):
    plain = [entry for entry in entries if "train_runtime" not in entry]
    return [{name: value for name, value in entry.items() if not name.endswith(CLOCKS)} for entry in plain]


def logged(log, history, *, first=True):
    log.on_log(None, SimpleNamespace(is_world_process_zero=first, log_history=history), None)


def test_lines_come_one_by_one_and_replace_what_an_earlier_process_left(tmp_path):
    (tmp_path / LOG).write_text('{"step": 1}\n{"step": 2}\n{"step": 3, "lo')
    log = LiveLog(tmp_path)
    logged(log, [{"step": 1}, {"step": 2}])
    assert lines_of(tmp_path / LOG) == [{"step": 1}, {"step": 2}]
    logged(log, [{"step": 1}, {"step": 2}, {"step": 3, "loss": 0.5}])
    assert lines_of(tmp_path / LOG)[2:] == [{"loss": 0.5, "step": 3}]


def test_one_process_of_several_writes(tmp_path):
    logged(LiveLog(tmp_path), [{"step": 1}], first=False)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_stops_no_run_and_what_it_left_is_written_anew(tmp_path, monkeypatch):
    log, history = LiveLog(tmp_path), [{"step": 1}]
    logged(log, history)
    original = Path.open

    def torn(self, mode="r", **options):
        file = original(self, mode, **options)
        if mode == "a":
            file.write('{"st')
            file.close()
            raise OSError(errno.ENOSPC, "No space left on device")
        return file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", torn)
        history.append({"step": 2})
        logged(log, history)
    history.append({"step": 3})
    logged(log, history)
    assert lines_of(tmp_path / LOG) == history


@pytest.fixture
def killed_at_five(tiny_recipe, monkeypatch):
    """A run of six steps that dies at the end of the fifth; what it had logged by then, and how it stood."""
    tiny_recipe["student"]["dropout"] = 0.1
    tiny_recipe["stages"][0]["training"] |= {"max_steps": 6}
    folder = Path(tiny_recipe["output"]) / "stages" / "1-minilmv2"
    seen = {}

    def die():
        seen["lines"], seen["status"] = lines_of(folder / LOG), status_of(folder.parents[1])
        raise MemoryError("killed")

    original = stage.DistillationTrainer.__init__

    def initialise(self, model, **arguments):
        original(self, model, **arguments)
        self.add_callback(AtStep(5, die))

    with monkeypatch.context() as patch:
        patch.setattr(stage.DistillationTrainer, "__init__", initialise)
        with pytest.raises(MemoryError):
            limbeck.distill(tiny_recipe)
    return tiny_recipe, folder, seen


@pytest.mark.parametrize("timed", [True, False], ids=["timed", "of-old"])
def test_a_killed_run_has_its_log_and_goes_on_to_the_same_one(killed_at_five, tmp_path, capsys, timed):
    recipe, folder, seen = killed_at_five
    assert [entry["step"] for entry in seen["lines"]] == [1, 2, 2, 3, 4, 4]
    assert (seen["status"].status, seen["status"].stage) == ("running", "minilmv2 (1 of 1)")
    assert lines_of(folder / LOG) == seen["lines"], "it stays when the run dies"
    with (folder / LOG).open("a") as file:
        file.write('{"step": 5, "lo')
    if not timed:
        strip_clocks(folder / "checkpoint-4")
    whole = {**recipe, "output": str(tmp_path / "whole")}
    limbeck.distill(whole)
    limbeck.distill(recipe, resume=True, console=Console(width=500))
    assert "skipped" not in capsys.readouterr().out
    ends = [load_file(f"{one['output']}/student/model.safetensors") for one in (recipe, whole)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[1])
    mine = lines_of(folder / LOG)
    assert without_clocks(mine) == without_clocks(lines_of(Path(whole["output"], "stages", "1-minilmv2", LOG)))
    assert all("tokens" in entry for entry in mine)
    if timed:
        assert all(before["seconds"] <= after["seconds"] for before, after in pairwise(mine))
        assert all(before["tokens"] <= after["tokens"] for before, after in pairwise(mine))


def strip_clocks(checkpoint):
    """Make a checkpoint as they were before there was a clock."""
    progress = json.loads((checkpoint / PROGRESS).read_text())
    del progress["seconds"]
    (checkpoint / PROGRESS).write_text(json.dumps(progress))
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    for entry in state["log_history"]:
        del entry["seconds"]
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    (checkpoint / MANIFEST).unlink()
    seal(checkpoint, {name: value for name, value in manifest.items() if name != "files"})


@pytest.mark.parametrize(("steps", "logged_at"), [(2, [2]), (5, [3, 5]), (3, [3])], ids=str)
def test_the_last_step_is_always_logged_and_once(tiny_recipe, steps, logged_at):
    tiny_recipe["stages"][0]["training"] |= {"max_steps": steps, "logging_steps": 3}
    done = limbeck.distill(tiny_recipe)
    lines = lines_of(Path(tiny_recipe["output"], "stages", "1-minilmv2", LOG))
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert [line["step"] for line in lines if "loss" in line] == logged_at
    (stage_record,) = done.record["stages"]
    assert stage_record["final_loss"] == losses[steps] and stage_record["final_terms"]
    assert (done.student / "model.safetensors").stat().st_mode == (done.student / "config.json").stat().st_mode
    assert done.record["teacher"]["kind"] == "folder" and done.record["teacher"]["hub_id"] is None


def test_an_evaluation_is_no_step_of_the_sign_of_life(tiny_recipe, monkeypatch):
    """Its line has tokens too, but a rate since the step just before would be none."""
    beats = []
    monkeypatch.setattr(Heartbeat, "beat", lambda self, **fields: beats.append(fields))
    limbeck.distill(tiny_recipe)
    rates = [fields["tokens_per_second"] for fields in beats if "tokens_per_second" in fields]
    assert len(rates) == 3 and all(rate > 0 for rate in rates)
    assert all(fields["loss"] is not None for fields in beats if "loss" in fields)
