"""A distillation module with its batches, and runs that are stopped in the middle."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

import limbeck
from limbeck.methods import METHODS, Pairing
from limbeck.models.blueprint import build_student
from limbeck.models.families import shape_of
from limbeck.recipe.training_arguments import build_arguments
from limbeck.training.module import DistillationModule, freeze_unreached
from limbeck.training.trainer import DistillationTrainer
from tests.support.models import tiny_config, tiny_model


class AtStep(TrainerCallback):
    """Does something at the end of a step, once."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.action()


@contextmanager
def at_step(step, action):
    """Have an action done at the end of a step of every stage that is trained in the block."""
    original = DistillationTrainer.__init__

    def initialise(self, model, **arguments):
        original(self, model, **arguments)
        self.add_callback(AtStep(step, action))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DistillationTrainer, "__init__", initialise)
        yield


def die(*arguments, **options):
    raise MemoryError("killed")


def kill_at(recipe, step):
    """Carry a run out until it dies at the end of a step."""
    with at_step(step, die), pytest.raises(MemoryError):
        limbeck.distill(recipe)


def elsewhere(recipe, folder, **changes):
    """A copy of a recipe with another output."""
    return json.loads(json.dumps(recipe)) | {"output": str(folder), **changes}


def stage_folder(recipe):
    """The folder of a run's first stage."""
    return next(Path(recipe["output"], "stages").glob("1-*"))


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


def student_of(recipe):
    """The weights of a run's student."""
    return load_file(Path(recipe["output"], "student", "model.safetensors"))


def assert_equal(found, expected):
    """Two sets of weights are equal to the bit."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def make_module(method="minilmv2", family="bert", options=None, **student):
    teacher = tiny_model(family)
    config = (
        tiny_config(family, layers=2, hidden=24, heads=2, ffn=48) if not student else tiny_config(family, **student)
    )
    chosen = METHODS[method]
    pairing = Pairing(shape_of(config), shape_of(teacher.config))
    terms = chosen.compose(chosen.options(**(options or {})), pairing)
    if any(key.kind == "logits" for term in terms for key in term.student):
        head = "masked_lm"
        return DistillationModule(build_student(config, seed=3, head=head), tiny_model(family, head=head), terms)
    return DistillationModule(build_student(config, seed=3), teacher, terms)


def make_rows(count, seed=0, longest=14):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, longest, (count,), generator=generator).tolist()
    return [
        {"input_ids": torch.randint(6, 60, (length,), generator=generator).tolist(), "length": length}
        for length in lengths
    ]


def collate(rows):
    width = max(len(row["input_ids"]) for row in rows)
    ids, mask = (torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long))
    for index, row in enumerate(rows):
        ids[index, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[index, : len(row["input_ids"])] = 1
    return {"input_ids": ids, "attention_mask": mask}


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return [row["length"] for row in self.rows] if index == "length" else self.rows[index]


def train(module, rows, tmp_path, batch, accumulation, steps=5, clip=0.5):
    arguments = build_arguments(
        {
            "max_steps": steps,
            "per_device_train_batch_size": batch,
            "gradient_accumulation_steps": accumulation,
            "learning_rate": 1e-2,
            "optim": "sgd",
            "max_grad_norm": clip,
            "bf16": False,
            "save_strategy": "no",
            "use_cpu": True,
        },
        output=str(tmp_path),
        seed=0,
        evaluates=False,
    )
    freeze_unreached(module, collate(rows[:2]))
    trainer = DistillationTrainer(module, args=arguments, train_dataset=Rows(rows), data_collator=collate)
    # The same rows in the same order, whatever the batch size.
    trainer.loader.sample = lambda _: torch.utils.data.SequentialSampler(Rows(rows))
    trainer.train()
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_accumulation_changes_nothing(method, clip, folder):
    """Rows have different lengths, so that a mean of means would differ; clipping would hide a wrong scale."""
    rows = make_rows(16)
    student = {"layers": 2, "hidden": 24, "heads": 2, "ffn": 48, "hidden_dropout_prob": 0.0}
    student["attention_probs_dropout_prob"] = 0.0
    torch.manual_seed(0)
    whole = train(make_module(method, **student), rows, folder, 8, 1, steps=2, clip=clip)
    torch.manual_seed(0)
    parts = train(make_module(method, **student), rows, folder, 1, 8, steps=2, clip=clip)
    start = make_module(method, **student).state_dict()
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(start[name], tensor) for name, tensor in whole.items() if "maps" not in name)
