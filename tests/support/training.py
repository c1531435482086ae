"""A distillation module with its batches, and runs that are stopped in the middle."""

import errno
import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from rich.console import Console
from safetensors.torch import load_file
from transformers import TrainerCallback

import limbeck
from limbeck.core.kinds import kind_of
from limbeck.corpus import PadCollator
from limbeck.methods import METHODS, Pairing
from limbeck.models.families import shape_of
from limbeck.models.students import build_student
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.recipe.stage_terms import needed_head
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.freezing import freeze_unreached
from limbeck.training.module import DistillationModule
from limbeck.training.seals import MANIFEST, seal
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.trainer import DistillationTrainer
from tests.support.models import tiny_config, tiny_model


@contextmanager
def at_step(step, action):
    """Have an action done with the module at the end of a step of every stage that is trained in the block."""
    original = DistillationTrainer.__init__

    class AtStep(TrainerCallback):
        def on_step_end(self, args, state, control, model, **kwargs):
            if state.global_step == step:
                action(model)

    def initialise(self, model, **arguments):
        original(self, model, **arguments)
        self.add_callback(AtStep())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DistillationTrainer, "__init__", initialise)
        yield


def interrupt(*arguments, **options):
    raise KeyboardInterrupt


def die(*arguments, **options):
    raise MemoryError("killed")


def full(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def failing_after(count, function, failure=full):
    """A function whose calls fail after so many."""
    left = iter(range(count))
    return lambda *arguments, **options: (failure if next(left, None) is None else function)(*arguments, **options)


def kill_at(recipe, step):
    """Carry a run out until it dies at the end of a step."""
    with at_step(step, die), pytest.raises(MemoryError):
        limbeck.distill(recipe)


def assert_ends_like(recipe, whole):
    """A run is resumed to the weights of one that was never stopped; return its result."""
    found = limbeck.distill(recipe, resume=True, console=Console(width=500))
    assert_equal(student_of(recipe), student_of(whole))
    assert unread_rows(recipe) == unread_rows(whole)
    return found


def send(*signals):
    """Return an action that sends signals to this process."""
    return lambda *_: [os.kill(os.getpid(), number) for number in signals]


def elsewhere(recipe, folder, **changes):
    """A copy of a recipe with another output."""
    return json.loads(json.dumps(recipe)) | {"output": str(folder), **changes}


def stage_folder(recipe):
    """The folder of a run's first stage."""
    return next(Path(recipe["output"], "stages").glob("1-*"))


def unread_rows(recipe):
    """The rows of embeddings that each stage of a run did not read."""
    files = sorted(Path(recipe["output"]).glob("stages/*/stage.json"))
    return [json.loads(file.read_text())["unread"] for file in files]


def record_of(recipe):
    return json.loads(Path(recipe["output"], "run.json").read_text())


def log_of(recipe):
    """The entries that all stages logged."""
    files = sorted(Path(recipe["output"]).glob("stages/*/log.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def without_clocks(entries):
    clocks = ("seconds", "runtime", "per_second")
    plain = [entry for entry in entries if "train_runtime" not in entry]
    return [{name: value for name, value in entry.items() if not name.endswith(clocks)} for entry in plain]


def reseal(checkpoint):
    """Write the manifest of a checkpoint anew, after a change of its files."""
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    (checkpoint / MANIFEST).unlink()
    del manifest["files"]
    seal(checkpoint, manifest)


def student_of(recipe):
    """The weights of a run's student."""
    return load_file(Path(recipe["output"], "student", "model.safetensors"))


def assert_equal(found, expected):
    """Two sets of weights are equal to the bit."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


#: The student of a module; its dropout is off where it is said.
STUDENT = {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make_module(method="minilmv2", family="bert", options=None, **student):
    config = tiny_config(family, **(STUDENT | student))
    chosen = METHODS[method]
    task = "text" if "text" in chosen.tasks else chosen.tasks[0]
    pairing = Pairing(shape_of(config), facts_of_shape(shape_of(tiny_config(family))), task)
    terms = chosen.compose(chosen.options(**(options or {})), pairing)
    head = needed_head(terms, pairing, "student")
    outputs = {"num_labels": 1} if kind_of(task).has_value else {}
    config.update(outputs)
    teaching = LiveTeaching(tiny_model(family, head=head, **outputs), terms)
    return DistillationModule(build_student(config, seed=3, head=head), teaching, terms)


def make_rows(count, seed=0, longest=14):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, longest, (count,), generator=generator).tolist()
    return [
        {"input_ids": torch.randint(6, 60, (length,), generator=generator).tolist(), "length": length}
        for length in lengths
    ]


collate = PadCollator(pad_token_id=0)


def make_trainer(module, rows, folder, *, policy=None, warn=print, **training):
    """A trainer of a module on rows in their order, whatever the size of a batch."""
    fixed = {"learning_rate": 1e-2, "bf16": False, "save_strategy": "no", "use_cpu": True}
    freeze_unreached(module, collate(rows[:2]))
    trainer = DistillationTrainer(
        module,
        policy=policy,
        warn=warn,
        args=build_arguments(fixed | training, output=str(folder), seed=0, evaluates=False),
        train_dataset=Dataset.from_list(rows),
        data_collator=collate,
    )
    trainer.loader.sample = torch.utils.data.SequentialSampler
    return trainer


def assert_accumulation_changes_nothing(method, clip, folder, **student):
    """Rows have different lengths, so that a mean of means would differ; clipping would hide a wrong scale."""
    rows, start, found = make_rows(16), make_module(method, **NO_DROPOUT, **student).state_dict(), []
    for batch, accumulation in ((8, 1), (1, 8)):
        torch.manual_seed(0)
        module = make_module(method, **NO_DROPOUT, **student)
        sizes = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
        make_trainer(module, rows, folder, max_steps=2, optim="sgd", max_grad_norm=clip, **sizes).train()
        found.append(module.state_dict())
    whole, parts = found
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(start[name], tensor) for name, tensor in whole.items() if "maps" not in name)
