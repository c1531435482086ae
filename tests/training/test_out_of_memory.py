"""Out of memory: the batch in pieces, with the gradient of the whole."""

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import limbeck
from limbeck.errors import TrainingError
from limbeck.training import stage
from limbeck.training.module import DistillationModule
from limbeck.training.out_of_memory import BatchSplitter, is_out_of_memory
from tests.support import training as support
from tests.support.models import make_teacher


@pytest.fixture
def recipe(recipe):
    recipe["stages"][0]["guard"] = {"on_out_of_memory": "split"}
    recipe["stages"][0]["training"] |= {"per_device_train_batch_size": 8, "max_steps": 4}
    return recipe


def test_what_is_out_of_memory():
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    assert not is_out_of_memory(KeyboardInterrupt())


def batch(rows):
    return {"input_ids": torch.arange(rows)[:, None], "labels": torch.arange(rows), "task": "x"}


def test_a_step_begins_again_in_pieces_that_fit_and_stays_with_them():
    lines, runs, restarts = [], [], []
    splitter = BatchSplitter(lines.append)

    def run(piece):
        runs.append(piece["input_ids"].flatten().tolist())
        assert torch.equal(piece["labels"], piece["input_ids"].flatten()) and piece["task"] == "x"
        if len(piece["labels"]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return piece["labels"].sum().double()

    splitter.begin_step()
    assert splitter.run(batch(3), run, lambda: restarts.append(1)) == 3
    assert splitter.run(batch(10), run, lambda: restarts.append(1)) == 45
    assert len(restarts) == 2
    begun_again = runs[runs.index([0, 1, 2], 1) :]
    assert begun_again[-5:] == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [6, 7, 8], [9]], "the first one too"
    assert splitter.rows == 3
    assert [line.split(";")[0] for line in lines] == ["Out of memory with 10 rows", "Out of memory with 5 rows"]
    splitter.begin_step()
    runs.clear()
    splitter.run(batch(4), run, pytest.fail)
    assert runs == [[0, 1, 2], [3]]


def test_a_single_row_that_does_not_fit_stops_the_run():
    def run(piece):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    splitter = BatchSplitter(lambda line: None)
    splitter.begin_step()
    with pytest.raises(TrainingError, match="with a single row"):
        splitter.run(batch(5), run, lambda: None)

    def wrong(piece):
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        BatchSplitter(print).run(batch(5), wrong, pytest.fail)


@pytest.fixture
def small_device(monkeypatch):
    """Let forward or backward passes fail that have more rows than fit."""

    def install(rows, where):
        original = DistillationModule.forward
        pieces = []

        def forward(self, input_ids, attention_mask, **inputs):
            if self.training:
                pieces.append(len(input_ids))
            too_many = self.training and len(input_ids) > rows
            if too_many and where == "forward":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            found = original(self, input_ids=input_ids, attention_mask=attention_mask, **inputs)
            if too_many:
                name = next(iter(found))
                parameter = next(p for p in self.parameters() if p.requires_grad)

                def fail(grad):
                    parameter.grad = torch.full_like(parameter, 7.0)  # A pass that breaks off leaves something behind.
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

                found[name][0].register_hook(fail)
            return found

        monkeypatch.setattr(DistillationModule, "forward", forward)
        return pieces

    return install


@pytest.mark.parametrize(("where", "accumulation"), [("forward", 1), ("backward", 2)])
def test_a_split_run_has_the_weights_and_losses_of_a_whole_one(
    recipe, tmp_path, small_device, where, accumulation, capsys
):
    recipe["student"]["dropout"] = 0.0
    recipe["stages"][0]["training"] |= {"gradient_accumulation_steps": accumulation, "optim": "sgd"}
    straight = support.elsewhere(recipe, tmp_path / "straight")
    expected = limbeck.distill(straight).record["stages"][0]
    assert expected["rows_of_a_piece"] is None
    pieces = small_device(3, where)
    found = limbeck.distill(recipe, console=Console(width=500)).record["stages"][0]
    assert found["rows_of_a_piece"] == 2
    assert set(pieces[-8:]) == {2}
    assert found["final_terms"] == pytest.approx(expected["final_terms"], rel=1e-5)
    assert found["tokens"] == expected["tokens"]
    assert_close(recipe, straight)
    for one, other in zip(support.log_of(recipe), support.log_of(straight), strict=True):
        assert {k: v for k, v in one.items() if "loss" in k} == pytest.approx(
            {k: v for k, v in other.items() if "loss" in k}, rel=1e-4
        )
    assert (
        "Out of memory with 8 rows; from now on each batch is run in pieces of at most 4 rows."
        in capsys.readouterr().out
    )


def assert_close(recipe, other):
    found, expected = (load_file(support.stage_folder(one) / "model.safetensors") for one in (recipe, other))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-7)


def test_masked_rows_are_split_alike(recipe, tmp_path, small_device):
    """Pieces may have few labels or none: counts are those of the whole step."""
    recipe["teacher"] = {"model": str(make_teacher(tmp_path / "lm", "bert", head="masked_lm"))}
    recipe["student"]["dropout"] = 0.0
    recipe["stages"][0] |= {"method": {"name": "mlm"}, "augment": {}}
    recipe["stages"][0]["training"] |= {"optim": "sgd", "max_steps": 2}
    straight = support.elsewhere(recipe, tmp_path / "straight")
    limbeck.distill(straight)
    small_device(1, "forward")
    limbeck.distill(recipe)
    assert_close(recipe, straight)


@pytest.mark.slow
def test_attempts_that_failed_leave_no_trace_in_the_random_streams(recipe, tmp_path, small_device, monkeypatch):
    """A run that splits from its first step draws its dropout as one that was begun with pieces of that size."""
    small_device(2, "backward")
    limbeck.distill(recipe)
    monkeypatch.undo()
    original = BatchSplitter.__init__

    def begin_with_two(self, warn):
        original(self, warn)
        self.rows = 2

    monkeypatch.setattr(BatchSplitter, "__init__", begin_with_two)
    other = support.elsewhere(recipe, tmp_path / "other")
    limbeck.distill(other)
    support.assert_equal(support.student_of(recipe), support.student_of(other))


def test_a_resumed_run_keeps_its_pieces(recipe, tmp_path, small_device, monkeypatch):
    recipe["stages"][0]["training"] |= {"eval_strategy": "no", "logging_steps": 3}
    straight = support.elsewhere(recipe, tmp_path / "straight")
    small_device(4, "forward")
    limbeck.distill(straight)
    with monkeypatch.context() as patch:
        patch.setattr(stage.DistillationTrainer, "log", support.die)
        with pytest.raises(MemoryError):
            limbeck.distill(recipe)
    monkeypatch.undo()  # The memory suffices now, and still: the same pieces.
    assert support.assert_ends_like(recipe, straight).record["stages"][0]["rows_of_a_piece"] == 4


def test_memory_that_runs_out_in_the_first_step_of_a_resumed_run(recipe, tmp_path, small_device, monkeypatch):
    """Its random streams are restored after its batches are read, and put back for the second attempt."""
    recipe["stages"][0]["training"] |= {"eval_strategy": "no"}
    straight = support.elsewhere(recipe, tmp_path / "straight")
    with support.at_step(2, lambda _: small_device(3, "backward")):
        assert limbeck.distill(straight).record["stages"][0]["rows_of_a_piece"] == 2
    monkeypatch.undo()
    support.kill_at(recipe, 3)
    small_device(3, "backward")
    assert support.assert_ends_like(recipe, straight).record["stages"][0]["rows_of_a_piece"] == 2


def test_without_the_policy_the_run_stops_and_says_what_there_is(recipe, small_device):
    del recipe["stages"][0]["guard"]
    small_device(3, "forward")
    with pytest.raises(TrainingError, match="guard.on_out_of_memory: split"):
        limbeck.distill(recipe)
    assert support.record_of(recipe)["status"] == "failed"
    done = limbeck.distill(recipe, ["stages.0.guard.on_out_of_memory=split"], resume=True)
    assert done.record["stages"][0]["rows_of_a_piece"] == 2
