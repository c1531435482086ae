"""Several lengths in one training: where they change, in which rows, and that a stopped run ends alike."""

import io
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import limbeck
from limbeck.core.blocks import Table
from limbeck.core.records import Run, load
from limbeck.core.run_status import status_of
from limbeck.corpus import Lane, LengthSchedule
from limbeck.errors import CorpusError, TrainingError
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.report.provenance import run_provenance
from limbeck.training.callbacks import ProgressReporter
from limbeck.training.corpora import build_corpora
from limbeck.training.proxy import Proxy
from limbeck.training.sampler import LengthGroupedSampler
from limbeck.training.shared_batches import SharedBatches
from limbeck.training.trainer import DistillationTrainer
from tests.support.streams import make_texts, write_texts
from tests.support.training import (
    assert_ends_like,
    assert_equal,
    at_step,
    elsewhere,
    record_of,
    stage_folder,
    student_of,
)
from tests.training.conftest import make_recipe, refused

CHANGE = 4
"""The last step of the first length."""


@pytest.fixture(scope="module", params=["built", "streamed"])
def runs(request, bert_folder, tmp_path_factory):
    """A run of six steps, its folder as it would be if it had been killed at its end, and the widths of batches."""
    folder = tmp_path_factory.mktemp(request.param)
    sources = [write_texts(folder / f"{name}.txt", make_texts(name, 30)) for name in ("a", "b")]
    more = {"gradient_accumulation_steps": 2, "save_steps": 1, "save_total_limit": 9, "per_device_train_batch_size": 8}
    whole = make_recipe(bert_folder, sources[0], folder / "whole", **more, eval_strategy="no")
    whole["corpus"] |= {"sources": list(map(str, sources)), "mix": {"weights": [2, 1]}}
    if request.param == "streamed":
        whole["corpus"] |= {"streaming": True, "shuffle_buffer": 40}
    whole["stages"][0] |= {"text": {"lengths": {12: 0.67, 32: 0.33}}}
    whole["stages"][0]["augment"] = {"mask_tokens": 0.3}
    met: list[tuple[int, int]] = []
    original = DistillationTrainer.training_step

    def step(self, model, inputs, *arguments):
        met.append((self.state.global_step, inputs["input_ids"].shape[1]))
        return original(self, model, inputs, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DistillationTrainer, "training_step", step)
        with at_step(6, lambda _: shutil.copytree(whole["output"], folder / "killed")):
            limbeck.distill(whole)
    return whole, folder / "killed", met


def test_the_length_changes_between_two_steps(runs):
    whole, _, met = runs
    assert [step for step, _ in met] == [step for step in range(6) for _ in range(2)]
    assert all((width > 12) == (step >= CHANGE) for step, width in met if step != CHANGE)
    assert max(width for step, width in met if step == CHANGE) > 12
    record = record_of(whole)
    (stage,) = record["stages"]
    assert [(part["length"], part["steps"]) for part in stage["lengths"]] == [(12, CHANGE), (32, 2)]
    assert sum(part["tokens"] for part in stage["lengths"]) == stage["tokens"]
    assert sum(stage["drawn"]["rows"].values()) == pytest.approx(6 * 16, abs=16)
    assert len({view["fingerprint"] for view in record["corpus"]["views"]}) == 2


@pytest.mark.parametrize("step", [CHANGE - 1, CHANGE, CHANGE + 1, 6])
def test_a_run_that_is_stopped_beside_the_change_ends_alike(runs, step, tmp_path):
    whole, killed, _ = runs
    resumed = elsewhere(whole, tmp_path / "run")
    shutil.copytree(killed, resumed["output"])
    for path in stage_folder(resumed).glob("checkpoint-*"):
        if int(path.name.split("-")[1]) > step:
            shutil.rmtree(path)
    assert_ends_like(resumed, whole)
    assert record_of(resumed)["stages"][0]["lengths"] == record_of(whole)["stages"][0]["lengths"]
    assert record_of(resumed)["stages"][0]["drawn"] == record_of(whole)["stages"][0]["drawn"]


def test_the_report_has_the_shares_of_each_length_and_what_was_drawn_once(runs):
    folder = Path(runs[0]["output"])
    blocks = run_provenance(load(Run, folder), folder, status_of(folder))
    [table] = [block for block in blocks if isinstance(block, Table) and block.caption == "Mixed sources"]
    drawn = record_of(runs[0])["stages"][0]["drawn"]["rows"]
    shares = (2 / 3, 1 / 3)
    # A row for each source at each length.
    assert [(length.value, share.value, count.value) for *_, length, share, count in table.rows] == [
        (length, pytest.approx(share), count)
        for length in (12, 32)
        for share, count in zip(shares, drawn.values(), strict=True)
    ]


@pytest.fixture
def two_lengths(tiny_recipe):
    tiny_recipe["student"] |= {"dropout": 0.1}
    tiny_recipe["stages"][0] |= {"text": {"lengths": {12: 0.5, 32: 0.5}}}
    return tiny_recipe


def test_targets_are_drawn_anew_in_the_epochs_of_every_length(two_lengths, monkeypatch):
    two_lengths["stages"][0] |= {
        "method": {"name": "hidden_states", "mapping": "random"},
        "text": {"lengths": {12: "2 epochs", 32: "1.5 epochs"}},
    }
    training = two_lengths["stages"][0]["training"]
    training |= {"per_device_train_batch_size": 64, "eval_strategy": "steps", "eval_steps": 1}
    del training["max_steps"]
    met: dict[str, list[int]] = {"train": [], "measure": []}
    for kind, name in (("train", "training_step"), ("measure", "evaluation_loop")):
        original = getattr(DistillationTrainer, name)

        def step(self, *arguments, kind=kind, original=original, **keywords):
            result = original(self, *arguments, **keywords)
            met[kind].append(self.module.course.epoch)
            return result

        monkeypatch.setattr(DistillationTrainer, name, step)
    limbeck.distill(two_lengths)
    first, second = [part["steps"] for part in record_of(two_lengths)["stages"][0]["lengths"]]
    epochs = met["train"]
    assert sorted(epochs) == epochs and set(epochs) == {0, 1, 2, 3}
    assert epochs[:first] == [2 * step // first for step in range(first)]
    assert epochs.count(2) > epochs.count(3) and len(epochs) == first + second
    assert met["measure"][: len(epochs)] == epochs


def proxy_of(plan, share=1.0):
    return Proxy(plan, share=share, console=Console(file=io.StringIO()))


def test_a_search_trains_the_lengths_of_the_run(two_lengths):
    plan = plan_run(load_recipe(two_lengths))
    (candidate,) = proxy_of(plan).train([plan])
    limbeck.distill(two_lengths)
    weights, found = student_of(two_lengths), candidate.student.state_dict()
    assert_equal({name: found[name] for name in weights}, weights)
    views = proxy_of(plan, 0.5).corpora[0].views
    whole = build_corpora(plan, proxy_of(plan).tokenizers.of_stage, Console(file=io.StringIO()))[0].views
    assert [len(view.train) for view in views] == [round(len(view.train) / 2) for view in whole]


def test_accumulation_does_not_change_the_rows_of_a_step():
    def rows_of_steps(batch_size, processes, micro_batches):
        """The rows of each of three steps, over all processes and micro-batches."""
        steps = [set(), set(), set()]
        for process in range(processes):
            sampler = LengthGroupedSampler(np.arange(21), 8, seed=0)
            lane = Lane(process, processes)
            batches = SharedBatches(sampler, batch_size, lane, drop_last=False, multiple=micro_batches)
            whole_epoch = list(batches)
            assert len(batches) == len(whole_epoch) == 3 * micro_batches
            for number, batch in enumerate(whole_epoch):
                steps[number // micro_batches].update(batch)
            batches.skip = micro_batches
            assert list(batches) == whole_epoch[micro_batches:]
        return steps

    alone = rows_of_steps(batch_size=8, processes=1, micro_batches=1)
    assert rows_of_steps(batch_size=4, processes=1, micro_batches=2) == alone
    assert rows_of_steps(batch_size=2, processes=2, micro_batches=2) == alone
    assert rows_of_steps(batch_size=1, processes=2, micro_batches=4) == alone


def test_a_schedule_shares_out_steps_and_epochs():
    shares = LengthSchedule.read({128: 0.9, 512: 0.1})
    assert (
        shares.ends(1000) == [900, 1000]
        and str(shares) == "128 tokens for 0.9 of the steps, then 512 tokens for 0.1 of the steps"
    )
    thirds = LengthSchedule.read({16: 1 / 3, 32: 1 / 3, 64: 1 / 3})
    assert thirds.ends(10) == [3, 7, 10]
    epochs = LengthSchedule.read({128: "3 epochs", 512: "2.5 epochs"})
    assert epochs.ends(-1, [40, 11]) == [120, 148]
    assert epochs.ends(74, [40, 11]) == [60, 74]
    with pytest.raises(CorpusError, match="Length 512 gets none of the 3 steps"):
        shares.ends(3)


def test_a_plan_says_the_lengths(two_lengths):
    lines = plan_run(load_recipe(two_lengths)).summary()
    assert lines["stage 1: minilmv2"].endswith("; 12 tokens for 0.5 of the steps, then 32 tokens for 0.5 of the steps")


def test_too_few_steps_for_the_epochs_of_every_length_are_refused(two_lengths):
    two_lengths["stages"][0]["text"] = {"lengths": {12: "40 epochs", 32: "1 epoch"}}
    with refused("Length 32 gets none of the 4 steps", TrainingError):
        limbeck.distill(two_lengths)


def test_the_time_left_counts_longer_steps_as_longer(monkeypatch):
    reporter, clock = ProgressReporter("stage", Console(file=io.StringIO())), [0.0]
    monkeypatch.setattr("limbeck.training.record.time.monotonic", lambda: clock[0])
    state = type("State", (), {"global_step": 0, "max_steps": 10, "is_world_process_zero": False})
    reporter.work_until = lambda step: 128 * min(step, 8) + 512 * max(step - 8, 0)
    reporter.on_train_begin(None, state, None)
    state.global_step, clock[0] = 4, 1.0
    assert reporter._seconds_left(state) == pytest.approx(1 + 2)


def test_the_time_left_counts_measurements_apart(monkeypatch):
    """A process that goes on from step 498 measures after its second step, which does not make its steps slow."""
    reporter, clock = ProgressReporter("stage", Console(file=io.StringIO())), [0.0]
    monkeypatch.setattr("limbeck.training.callbacks.time.monotonic", lambda: clock[0])
    state = SimpleNamespace(global_step=498, max_steps=1200, eval_steps=500, is_world_process_zero=True)
    reporter.on_train_begin(SimpleNamespace(torch_compile=False, eval_strategy="steps"), state, None)
    for state.global_step in (499, 500):
        clock[0] += 10
        reporter.on_step_end(None, state, None)
    assert reporter._seconds_left(state) == 700 * 10, "how long a measurement takes is not known"
    for what in ("scores on development rows", "held-out loss"):
        with reporter.activity(what):
            clock[0] += 50
    state.global_step, clock[0] = 501, clock[0] + 10
    reporter.on_step_end(None, state, None)
    assert reporter._seconds_left(state) == 699 * 10 + 2 * 100, "measured at steps 1,000 and 1,200"
    state.global_step, clock[0] = 1200, clock[0] + 699 * 10
    assert reporter._seconds_left(state) == 100
    reporter.close()
