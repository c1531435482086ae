"""A distillation module with its batches, and an action in the middle of a run."""

import torch
from transformers import TrainerCallback

from limbeck.methods import METHODS, Pairing
from limbeck.models.building import build_student
from limbeck.models.families import shape_of
from limbeck.training.module import DistillationModule
from tests.support.models import tiny_config, tiny_model


class AtStep(TrainerCallback):
    """Does something at the end of a step, once."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.action()


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
    ids, mask = (
        torch.zeros(len(rows), width, dtype=torch.long),
        torch.zeros(len(rows), width, dtype=torch.long),
    )
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
