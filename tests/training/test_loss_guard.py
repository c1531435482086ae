"""Bad losses: stopped or skipped, with the batch for study, and exactly resumed."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file

import limbeck
from limbeck.errors import TrainingError
from limbeck.recipe.stages import GuardSpec
from limbeck.training import stage
from limbeck.training.arrivals import Sending
from limbeck.training.loss_guard import WINDOW, LossGuard, save_bad_batch
from limbeck.training.module import DistillationModule
from limbeck.training.step_start import takes_flag
from limbeck.training.trainer import DistillationTrainer
from tests.support import training as support


class Term(NamedTuple):
    name: str
    weight: float


def make_guard(factor=None, weight=1.0, folder=Path(), warn=pytest.fail):
    policy = GuardSpec(on_bad_loss="skip", explosion_factor=factor)
    return LossGuard([Term("term", weight)], policy, torch.device("cpu"), folder, warn)


def judge(losses, factor, norm=1.0):
    """The verdicts on a term with weight 2, and the last one's numbers: bad, loss, median, norm, term."""
    guard = make_guard(factor, weight=2.0)
    judged = [guard._judge(torch.tensor([loss]).double(), torch.tensor(norm).double()) for loss in losses]
    is_bad = [bool(step_is_bad) for step_is_bad, _ in judged]
    _, last_verdict = judged[-1]
    return is_bad, last_verdict.tolist()


def test_what_is_not_finite_is_bad_whatever_the_factor():
    for bad in (float("nan"), float("inf"), -float("inf")):
        assert judge([1.0, bad, 1.0], None)[0] == [False, True, False]
        assert judge([1.0], None, norm=bad)[0] == [True]
    assert judge([1.0, 1e30], None)[0] == [False, False]


def test_a_loss_above_the_factor_times_the_running_median_explodes():
    losses = [1.0, 3.0] * 8
    verdicts, last = judge([*losses, 5.9], 6.0)  # Losses are twice the term; of two middle ones the lower counts.
    assert verdicts == [False] * 17 and last[1:3] == [pytest.approx(11.8), 2.0]
    assert judge([*losses, 6.1], 6.0)[0][-1] is True
    assert judge([*losses[:15], 1e9], 6.0)[0][-1] is False, "too few to compare with"
    assert judge([*losses, 1e9, 1e9, 1e9], 6.0)[0][-3:] == [True] * 3, "bad losses do not move the median"


def test_the_median_is_that_of_the_last_good_losses():
    losses = [100.0] * WINDOW + [1.0] * WINDOW + [30.0]
    verdicts, last = judge(losses, 20.0)
    assert last[2] == 2.0
    assert verdicts[-1] is True
    assert not any(verdicts[:-1])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(150, generator=generator, dtype=torch.float64)
    assert judge(drawn, 1e6)[1][2] == float((2 * drawn[-WINDOW - 1 : -1]).quantile(0.5, interpolation="lower"))


def test_a_guard_is_resumed_exactly():
    losses = torch.rand(90, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    zero = torch.zeros((), dtype=torch.float64)
    whole, first, second = (make_guard(1.2) for _ in range(3))
    for loss in losses[:40]:
        first._judge(loss[None], zero)
    second.load(json.loads(json.dumps(first.state())))
    expected = [whole._judge(loss[None], zero) for loss in losses]
    for loss, row in zip(losses[40:], expected[40:], strict=True):
        torch.testing.assert_close(second._judge(loss[None], zero), row, rtol=0, atol=0, equal_nan=True)
    assert 0 < sum(bool(row[0]) for row in expected) < 90


@pytest.fixture
def poison(monkeypatch):
    """Let a term come to a value in some steps of the training."""

    def install(values):
        original, calls = DistillationModule._loss_of, []

        def poisoned(self, term, *streams):
            loss = original(self, term, *streams)
            if term.name != "key_key" or not self.training:
                return loss
            calls.append(term.name)
            factor = values.get(len(calls))
            return loss if factor is None else type(loss)(loss.total * factor, loss.count)

        monkeypatch.setattr(DistillationModule, "_loss_of", poisoned)

    return install


@pytest.fixture
def recipe(recipe):
    training = {"max_steps": 8, "logging_steps": 2, "eval_strategy": "no", "per_device_train_batch_size": 8}
    recipe["stages"][0]["training"] |= training
    return recipe


def test_the_batch_is_saved_and_named(recipe, poison, monkeypatch):
    poison({5: float("nan")})
    met = []
    original = stage.DistillationTrainer.get_batch_samples

    def watched(self, *arguments):
        found = original(self, *arguments)
        met.append(found[0])
        return found

    monkeypatch.setattr(stage.DistillationTrainer, "get_batch_samples", watched)
    with pytest.raises(TrainingError, match=r"'key_key' became nan at step 5.*on_bad_loss: skip") as caught:
        limbeck.distill(recipe)
    path = support.stage_folder(recipe) / "bad_batches" / "step-5.safetensors"
    assert f"its batch is in '{path}'" in str(caught.value)
    saved = load_file(path)
    for name, tensor in met[4][0].items():
        assert torch.equal(saved[f"0.{name}"], tensor)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert metadata["step"] == "5" and "became nan" in metadata["problem"]
    assert not (support.stage_folder(recipe) / "checkpoint-6").exists()
    for checkpoint in support.stage_folder(recipe).glob("checkpoint-*"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(checkpoint / "model.safetensors").values())
    record = support.record_of(recipe)
    assert record["status"] == "failed" and "became nan at step 5" in record["problem"]
    monkeypatch.undo()
    poison({1: float("nan")})
    done = limbeck.distill(recipe, ["stages.0.guard.on_bad_loss=skip"], resume=True)
    assert done.record["stages"][0]["skipped_steps"] == 1


def test_a_skipped_step_changes_nothing_and_the_run_goes_on(recipe, poison, capsys):
    recipe["stages"][0]["guard"] = {"on_bad_loss": "skip"}
    recipe["stages"][0]["training"] |= {"logging_steps": 1, "save_steps": 1, "save_total_limit": 20}
    poison({5: float("nan"), 6: float("inf")})
    with support.at_step(8, support.die), pytest.raises(MemoryError):
        limbeck.distill(recipe, console=Console(width=500))
    seen = {}
    for step in range(3, 8):
        checkpoint = support.stage_folder(recipe) / f"checkpoint-{step}"
        moments = torch.load(checkpoint / "optimizer.pt", weights_only=True)["state"]
        seen[step] = {(index, name): moment for index in moments for name, moment in moments[index].items()}
        seen[step] |= load_file(checkpoint / "model.safetensors")
    assert same(seen[4], seen[5]) and same(seen[4], seen[6])
    assert not same(seen[3], seen[4]) and not same(seen[6], seen[7])
    found = limbeck.distill(recipe, resume=True).record["stages"][0]
    assert (found["steps"], found["skipped_steps"]) == (8, 2)
    log = support.log_of(recipe)
    assert [entry["step"] for entry in log if "loss" in entry] == [1, 2, 3, 4, 7, 8]
    assert all(value == value for entry in log for name, value in entry.items() if "loss" in name)
    rates = {entry["step"]: entry["learning_rate"] for entry in log if "learning_rate" in entry}
    assert rates[8] < rates[7] < rates[5] < rates[4], "the schedule goes on"
    printed = capsys.readouterr().out
    assert "became nan at step 5; the step is skipped" in printed
    assert "became inf at step 6; the step is skipped" in printed


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def train(folder, method, optimizer, rows, **policy):
    """Train at a constant rate, without randomness."""
    torch.manual_seed(0)
    sizes = {"hidden": 48, "heads": 4} if method == "bert_emd" else {}
    training = {"max_steps": len(rows) // 8, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    training |= {"lr_scheduler_type": "constant", "warmup_steps": 0, "max_grad_norm": 0.5, **optimizer}
    module, lines = support.make_module(method, **support.NO_DROPOUT, **sizes), []
    policy = GuardSpec(**policy)
    trainer = support.make_trainer(module, rows, folder, policy=policy, warn=lines.append, **training)
    trainer.train()
    trainer.guard.check()
    return trainer, lines, module.state_dict(), list(trainer.optimizer.state_dict()["state"].values())


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        ("minilmv2", {"optim": "adamw_torch_fused"}),
        ("minilmv2", {"optim": "adamw_torch"}),
        ("minilmv2", {"optim": "sgd"}),
        ("bert_emd", {"optim": "adamw_torch_fused"}),  # Its layer weights move in every forward.
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value.values()),
)
def test_a_run_with_a_skipped_step_is_the_run_without_its_batch(method, optimizer, tmp_path, monkeypatch):
    rows = support.make_rows(48)
    *_, expected, its_moments = train(tmp_path, method, optimizer, rows[:16] + rows[24:])
    original, steps = DistillationTrainer.training_step, []

    def spoiled(self, model, inputs, count=None):
        loss = original(self, model, inputs, count)
        steps.append(self.state.global_step)
        if len(steps) == 6:  # The second micro-batch of the third step.
            next(p for p in model.parameters() if p.grad is not None).grad.view(-1)[3] = float("nan")
        return loss

    monkeypatch.setattr(DistillationTrainer, "training_step", spoiled)
    trainer, lines, weights, moments = train(tmp_path, method, optimizer, rows, on_bad_loss="skip")
    assert takes_flag(trainer.optimizer) is (optimizer["optim"] == "adamw_torch_fused")
    assert (trainer.guard.skipped, trainer.state.global_step) == (1, 6)
    assert "norm of the gradient became nan at step 3, though the loss was finite; the step is skipped" in lines[0]
    support.assert_equal(weights, expected)
    assert moments or optimizer["optim"] == "sgd"
    for found, wanted in zip(moments, its_moments, strict=True):
        assert all(found[name] is None or torch.equal(found[name], wanted[name]) for name in wanted)


def test_skips_are_resumed_with_the_run(recipe, poison, tmp_path, monkeypatch):
    recipe["stages"][0]["guard"] = {"on_bad_loss": "skip", "explosion_factor": 50.0}
    recipe["stages"][0]["training"] |= {"max_steps": 22}
    bad = {4: float("nan"), 20: 1e4}
    poison(bad)
    straight = support.elsewhere(recipe, tmp_path / "straight")
    assert limbeck.distill(straight).record["stages"][0]["skipped_steps"] == 2
    monkeypatch.undo()
    poison(bad)
    support.kill_at(recipe, 17)
    monkeypatch.undo()
    poison({20 - 16: 1e4})  # Counted from the checkpoint of step 16.
    assert support.assert_ends_like(recipe, straight).record["stages"][0]["skipped_steps"] == 2


def test_too_many_in_a_row_stop_the_run_and_a_resumed_one_may_allow_more(recipe, poison, monkeypatch):
    recipe["stages"][0]["guard"] = {"on_bad_loss": "skip", "skips_in_a_row": 2}
    poison(dict.fromkeys((2, 4, 5), float("nan")))
    limbeck.distill(support.elsewhere(recipe, recipe["output"] + "-two"))
    monkeypatch.undo()
    poison(dict.fromkeys((5, 6, 7), float("nan")))
    with pytest.raises(TrainingError, match=r"at step 7, as in 2 skipped steps right before it.*skips_in_a_row"):
        limbeck.distill(recipe)
    monkeypatch.undo()
    poison(dict.fromkeys((1, 2, 3), float("nan")))  # Steps 5, 6 and 7, counted from the checkpoint of step 4 or 6.
    done = limbeck.distill(recipe, ["stages.0.guard.skips_in_a_row=9"], resume=True)
    assert done.record["status"] == "finished"


def test_no_more_than_twenty_batches_are_saved(tmp_path):
    batch = [{"input_ids": torch.arange(4)[None], "task": "none"}, {"input_ids": torch.arange(2)[None]}]
    saved = [save_bad_batch(tmp_path, step, batch, "x") for step in range(1, 25)]
    assert [path is None for path in saved] == [False] * 20 + [True] * 4
    assert save_bad_batch(tmp_path, 3, batch, "x") == saved[2], "met again by a resumed run"
    assert sorted(load_file(saved[0])) == ["0.input_ids", "1.input_ids"]
    assert save_bad_batch(tmp_path / "a", 1, [{}], "x") is None
    (tmp_path / "b").write_text("a file")
    assert save_bad_batch(tmp_path / "b", 1, batch, "x") is None


def test_a_guard_waits_for_nothing_and_forgets_nothing(tmp_path):
    """Verdicts that are not there yet are looked at later, in order."""

    class Event:
        def __init__(self):
            self.done, self.waited = False, False

        def query(self):
            return self.done

        def synchronize(self):
            self.waited = True

    lines = []
    guard = LossGuard([], GuardSpec(on_bad_loss="skip"), torch.device("cpu"), tmp_path, lines.append)
    events = [Event(), Event()]
    values = torch.tensor([1.0, 1.0, float("nan"), float("inf")], dtype=torch.float64)
    guard._verdicts._sent.extend(Sending(values, event, (step, [])) for step, event in enumerate(events, start=1))
    guard._act_on_verdicts(wait=False)
    assert not lines
    events[0].done = True
    guard._act_on_verdicts(wait=False)
    assert len(lines) == 1 and not events[1].waited
    guard.check()
    assert guard.skipped == 2 and events[1].waited
