"""Soft labels over a vocabulary are taught without the logits of all tokens, as the pages say."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from limbeck.methods import METHODS, Pairing
from limbeck.models.families import shape_of
from limbeck.models.students import build_student
from limbeck.models.teaching_facts import facts_of_shape
from limbeck.training.module import DistillationModule
from limbeck.training.teaching.live import LiveTeaching
from tests.support.models import tiny_config

ROWS, LENGTH, VOCABULARY = 4, 24, 200_000


class LargestScores(TorchDispatchMode):
    """Notes the most numbers of a tensor over the vocabulary."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for x in tree_leaves(found):
            if isinstance(x, torch.Tensor) and VOCABULARY in x.shape:
                self.numbers = max(self.numbers, x.numel())
        return found


def test_a_student_of_all_positions_is_trained_without_a_tensor_of_all_logits():
    config = tiny_config(layers=1, hidden=8, heads=2, ffn=8, vocab_size=VOCABULARY)
    method = METHODS["distilbert"]
    terms = method.compose(method.options(), Pairing(shape_of(config), facts_of_shape(shape_of(config))))
    student, teacher = (build_student(config, seed=seed, head="masked_lm") for seed in (0, 1))
    module = DistillationModule(student, LiveTeaching(teacher, terms), terms).train()
    ids = torch.randint(VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    labels = ids.where(ids % 7 == 0, -100)
    with LargestScores() as seen:
        found = module(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels)
        sum(total for total, _ in found.values()).backward()
    assert found["soft_label"][1] == ROWS * LENGTH
    assert student.cls.predictions.decoder.weight.grad.any() and student.cls.predictions.bias.grad.any()
    assert 0 < seen.numbers < ROWS * LENGTH * VOCABULARY
