"""Several processes: the trajectory of one, and ends that all come to together."""

import io
import json
import math
import signal
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, DistributedType, PartialState
from rich.console import Console
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor

from limbeck.core.rank_tasks import broadcasting_tasks
from limbeck.core.ranks import connect, process_count, process_index
from limbeck.methods import METHODS
from limbeck.models.families import blocks
from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search.mapping import search_mapping
from limbeck.search.requests import MappingRequest, ProxyRequest, task_measures
from limbeck.training.cohort import StudentCohort
from limbeck.training.corpora import build_corpora
from limbeck.training.proxy import Proxy, follow_proxy
from limbeck.training.run_tokenizers import load_tokenizers
from tests.support.methods import tiny_run, write_rows
from tests.support.models import make_teacher
from tests.support.together import distil, together
from tests.support.training import (
    assert_equal,
    at_step,
    elsewhere,
    failing_after,
    log_of,
    record_of,
    send,
    student_of,
    unread_rows,
)
from tests.training.conftest import make_recipe

DEFAULT = ("minilmv2", "hidden_states", "mlm", "mlkd_bert", "bert_emd")
SIGNALLED = partial(at_step, 3, send(signal.SIGTERM))


def assert_close(found, expected):
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=2e-5, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}")


def assert_same_trajectory(first, second):
    assert_close(student_of(second), student_of(first))
    assert unread_rows(second) == unread_rows(first)
    one, other = log_of(first), log_of(second)
    assert [entry.keys() for entry in one] == [entry.keys() for entry in other]
    for mine, its in zip(one, other, strict=True):
        for name in mine:
            if name.startswith(("loss", "eval_")) and not name.endswith(("runtime", "_per_second")):
                assert its[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-6), (name, mine["step"])
            elif name in ("step", "epoch", "tokens", "learning_rate"):
                assert its[name] == mine[name]


def trained(recipe, output, **training):
    """A copy of a recipe with another output and other training arguments of all stages."""
    changed = elsewhere(recipe, output)
    for stage in changed["stages"]:
        stage["training"] |= training
    return changed


def divided(recipe, output, *, batch, accumulation=1):
    return trained(recipe, output, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation)


@pytest.fixture(scope="module")
def base(bert_folder, text_folder, tmp_path_factory):
    """Nine steps of four rows in each of two processes."""
    changes = {"per_device_train_batch_size": 4, "max_steps": 9, "save_steps": 3, "eval_steps": 7}
    recipe = make_recipe(bert_folder, text_folder, tmp_path_factory.mktemp("together") / "two", **changes)
    del recipe["stages"][0]["augment"]
    return recipe


@pytest.fixture(scope="module")
def two(base):
    """The recipe of a run in two processes that nothing disturbed."""
    distil(base)
    return base


@pytest.fixture
def plain(base, tmp_path):
    """The recipe without dropout, which several processes draw otherwise than one."""
    found = trained(base, tmp_path / "plain", adam_epsilon=1e-4, logging_steps=5)
    found["student"]["dropout"] = 0.0
    return found


ON_ROWS = {"mlkd_bert": "classification", "bert_pkd": "classification", "reranker": "ranking"}
#: Their terms cannot be accumulated.
COUPLING = ("mlkd_bert", "bert_emd")


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    outputs = {"masked_lm": {}, "classification": {"num_labels": 3}, "ranking": {"num_labels": 1}}
    return {
        head: make_teacher(tmp_path_factory.mktemp(head), "bert", head=head, **changes)
        for head, changes in outputs.items()
    }


@pytest.mark.parametrize(
    "name", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_one_process_two_processes_and_accumulation_take_the_same_steps(name, tmp_path, teachers, text_folder):
    """Last batches of epochs are not full."""
    corpus, teacher = (
        {"sources": [str(text_folder)], "length": 24, "held_out": 0.1, "max_documents": 11},
        teachers["masked_lm"],
    )
    if name in ON_ROWS:
        corpus, teacher = (
            write_rows(tmp_path / "rows", ON_ROWS[name], rows=48 if name == "reranker" else 33),
            teachers[ON_ROWS[name]],
        )
    # Where samples of a batch act on each other, a last batch that is not full is left out by several processes.
    training = {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 3, "dataloader_drop_last": name in COUPLING}
    # Adam makes whole steps of gradients that are next to nothing, and the order of a sum decides which nothing.
    one = tiny_run(name, teacher, corpus, tmp_path / "one", adam_epsilon=1e-4, **training)
    distil(one, 1)
    in_two = divided(one, tmp_path / "two", batch=4)
    distil(in_two)
    assert_same_trajectory(one, in_two)
    if name not in COUPLING:
        halves = divided(one, tmp_path / "halves", batch=4, accumulation=2)
        distil(halves, 1)
        assert_same_trajectory(one, halves)


def test_a_signal_to_one_process_stops_both_at_one_step_and_the_run_goes_on_as_if_nothing_had_been(two, tmp_path):
    stopped = elsewhere(two, tmp_path / "stopped")
    first, second = distil(stopped, codes=75, disturbed=SIGNALLED, rank=1)
    assert first.startswith("Stopped at step 4 ") and second == ""
    distil(stopped, resume=True)
    assert_equal(student_of(stopped), student_of(two))
    losses = [[entry.get("loss") for entry in log_of(recipe)] for recipe in (two, stopped)]
    assert losses[0] == losses[1]


def test_when_a_process_dies_the_others_end_with_a_line_and_the_run_goes_on(two, tmp_path):
    hurt = elsewhere(two, tmp_path / "hurt")
    said = distil(hurt, codes=[1, -9], disturbed=partial(at_step, 5, send(signal.SIGKILL)), rank=1)
    assert said[0].startswith("Process 0 lost touch with another one")
    distil(hurt, resume=True)
    assert_equal(student_of(hurt), student_of(two))


def test_a_run_goes_on_with_another_number_of_processes(plain, tmp_path):
    distil(plain)
    losses = {}
    for name, count in (("changed", 1), ("same", 2)):
        recipe = elsewhere(plain, tmp_path / name)
        distil(recipe, codes=75, disturbed=SIGNALLED)
        if count == 1:
            [refused] = distil(recipe, 1, codes=2, resume=True)
            assert "rows a step" in refused
            recipe = divided(recipe, recipe["output"], batch=8)
        distil(recipe, count, resume=True)
        assert_close(student_of(recipe), student_of(plain))
        # The mean of a log that was begun before the stop is of all its steps.
        losses[name], expected = ([e["loss"] for e in log_of(run) if "loss" in e] for run in (recipe, plain))
        assert losses[name] == pytest.approx(expected, rel=1e-5)


def test_a_process_without_a_row_takes_the_step_with_none(plain, tmp_path):
    odd = trained(plain, tmp_path / "odd", logging_steps=1, max_steps=14) | {"corpus": odd_text(plain)}
    one, two = divided(odd, tmp_path / "one", batch=10), divided(odd, tmp_path / "two", batch=5)
    distil(one, 1)
    distil(two)
    assert_same_trajectory(one, two)


def odd_text(recipe):
    """A part of the text with one row more than a multiple of ten."""
    for count in range(48, 60):
        text = recipe["corpus"] | {"max_documents": count}
        plan = plan_run(load_recipe(recipe | {"corpus": text}))
        (corpus,) = build_corpora(plan, load_tokenizers(plan).of_stage, Console(file=io.StringIO()))
        if len(corpus.train) % 10 == 1:
            return text
    raise AssertionError("no number of documents makes such rows")


@contextmanager
def full_disk():
    """The disk takes no second checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "save", failing_after(3, torch.save))
        yield


def test_a_mistake_is_said_once_by_the_main_process(base, tmp_path):
    diverging = trained(base, tmp_path / "diverging", learning_rate=1e30, max_grad_norm=0, warmup_steps=0)
    no_text = elsewhere(base, tmp_path / "text", corpus={"sources": [str(tmp_path / "nothing")]})
    full, sharded = elsewhere(base, tmp_path / "full"), trained(base, tmp_path / "sharded", fsdp=True)
    for recipe, code, line, disturbed in (
        (diverging, 1, "step", {}),
        (no_text, 2, "nothing", {}),
        (full, 1, "No space left", {"disturbed": full_disk}),
        (full, 2, "is not empty", {}),
        (sharded, 2, "training.fsdp shards over several GPUs", {}),
    ):
        first, second = distil(recipe, codes=code, **disturbed)
        assert line in first and second == ""
    assert [path.name for path in Path(full["output"]).glob("stages/1-*/checkpoint-*")] == ["checkpoint-3"]
    saved = sorted(Path(diverging["output"]).glob("stages/1-*/bad_batches/*"))
    assert [path.name.split(".", 1)[1] for path in saved] == ["process-0.safetensors", "process-1.safetensors"]
    assert all(len(load_file(path)["0.input_ids"]) == 4 for path in saved), "every process saves its rows"


def test_several_processes_leave_what_one_leaves(base, tmp_path):
    quality = {"enabled": True, "speed": False, "retrieval_pairs": 10, "pairs": 10}
    shared = trained(base, tmp_path / "shared", max_steps=2) | {"evaluation": quality}
    alone = divided(shared, tmp_path / "alone", batch=8)
    distil(shared)
    distil(alone, 1)
    found, expected = (
        {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        for folder in (Path(shared["output"]), Path(alone["output"]))
    )
    assert found == expected
    record = record_of(shared)
    assert record["status"] == "finished" and record["evaluation"]
    saved = load_file(Path(shared["output"], "stages/1-minilmv2/model.safetensors"))
    assert not [name for name in saved if "teacher" in name]


@pytest.fixture
def sharding_on_cpus(monkeypatch):
    """FSDP, which accelerate leaves off without GPUs; PyTorch itself shards on CPUs just as well."""
    original = AcceleratorState.__init__

    def initialise(self, *positional, fsdp_plugin=None, **named):
        original(self, *positional, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.fsdp_plugin = fsdp_plugin
            self.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    monkeypatch.setattr(AcceleratorState, "__init__", initialise)


@pytest.mark.usefixtures("sharding_on_cpus")
def test_a_sharded_student_and_a_sharded_teacher_take_the_same_steps(plain, tmp_path):
    changes = {"per_device_train_batch_size": 8, "max_steps": 6, "save_steps": 2, "eval_steps": 4, "logging_steps": 1}
    whole = trained(plain, tmp_path / "whole", **changes)
    distil(whole, 1)
    by_sharded = divided(whole, tmp_path / "teacher", batch=4)
    by_sharded["teacher"]["sharded"] = True
    distil(by_sharded)
    sharded, stopped = (trained(by_sharded, tmp_path / name, fsdp=True) for name in ("sharded", "stopped"))
    noted = tmp_path / "blocks.json"

    def note_whole_blocks(module):
        # The last one is left in the middle of its forward pass.
        found = list(enumerate(blocks(module.teaching.teacher)))[:-1]
        noted.write_text(json.dumps([i for i, b in found for p in b.parameters() if not isinstance(p, DTensor)]))

    distil(sharded, disturbed=partial(at_step, 3, note_whole_blocks))
    assert json.loads(noted.read_text()) == []
    distil(stopped, codes=75, disturbed=SIGNALLED)
    distil(stopped, resume=True)
    for recipe in (by_sharded, sharded, stopped):
        assert_same_trajectory(whole, recipe)
    assert_equal(student_of(stopped), student_of(sharded))


def candidates(recipe, batch):
    """Three mappings of one recipe."""
    found = []
    for mapping in ([0, 2], [1, 4], [2, 3]):
        training = {"max_steps": 4, "max_grad_norm": 0.05, "logging_steps": 1}
        one = trained(divided(recipe, "unused", batch=batch), "unused", **training)
        one["stages"][0]["method"] = {"name": "hidden_states", "mapping": mapping}
        found.append(one)
    return found


def poison(patch):
    """The second student diverges in the last process alone."""
    steps, forward = iter(range(1000)), StudentCohort.forward

    def poisoned(self, *inputs, **more):
        broken = self.training and next(steps) == 3 and process_index() == process_count() - 1
        found = forward(self, *inputs, **more)
        return {name: (t * math.nan if broken and name.startswith("1/") else t, c) for name, (t, c) in found.items()}

    patch.setattr(StudentCohort, "forward", poisoned)


@pytest.mark.parametrize(
    ("way", "steps", "diverged"),
    [
        ("all", [4, 4, 4], [False] * 3),
        ("one is cut", [4, 2, 4], [False] * 3),
        ("one diverges", [4, 3, 4], [False, True, False]),
    ],
)
def test_students_under_one_teacher_learn_in_two_processes_as_in_one(
    plain, tmp_path, monkeypatch, way, steps, diverged
):
    cuts = {2: lambda students: [index for index in students if index != 1]} if way == "one is cut" else None
    if way == "one diverges":
        poison(monkeypatch)

    def train(count, index, console):
        connect()
        plans = [plan_run(load_recipe(recipe)) for recipe in candidates(plain, 8 // count)]
        if index > 0:
            follow_proxy(plans[0], share=1.0)
            return
        with broadcasting_tasks():
            done = Proxy(plans[0], console=console).train(plans, cuts=cuts)
        found = [(one.steps, one.diverged, one.held_out, one.student.state_dict()) for one in done]
        torch.save(found, tmp_path / str(count))

    for count in (1, 2):
        assert [code for code, _ in together(count, partial(train, count))] == [0] * count
    found = [torch.load(tmp_path / str(count)) for count in (1, 2)]
    for number, (one, two) in enumerate(zip(*found, strict=True)):
        assert one[:2] == two[:2] == (steps[number], diverged[number])
        assert two[2] == pytest.approx(one[2], rel=1e-4)
        assert_close(two[3], one[3])


def test_a_search_in_two_processes_finds_what_it_finds_in_one_and_refuses_tasks(plain, tmp_path):
    def search(output, batch, tasks, index, console):
        recipe = load_recipe(candidates(plain, batch)[0])
        request = MappingRequest(
            ProxyRequest(recipe, output, "mapping", steps=3, share=1.0, storage=None),
            generations=2,
            genetic={"population": 3},
            teacher_layers=None,
            measures=task_measures(tasks, data="/nowhere" if tasks else None, preset="quick", seeds=1, settings=[]),
            batch=None,
            workers=1,
        )
        record = search_mapping(request, console)
        if index == 0:
            (output / "found.json").write_text(json.dumps(record))

    found = []
    for count in (1, 2):
        output = tmp_path / str(count)
        assert [code for code, _ in together(count, partial(search, output, 8 // count, None))] == [0] * count
        found.append(json.loads((output / "found.json").read_text())["candidates"])
    assert [row["mapping"] for row in found[1]] == [row["mapping"] for row in found[0]]
    assert [row["fitness"] for row in found[1]] == pytest.approx([row["fitness"] for row in found[0]], rel=1e-3)
    refused = together(2, partial(search, tmp_path / "tasks", 4, "sst2"))
    assert [code for code, _ in refused] == [2, 2]
    assert refused[0][1].startswith("--tasks are fine-tuned by one process")
