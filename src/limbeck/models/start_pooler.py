"""The start of a student's pooler: a copy of the source's, or random values.

The *pooler* is the layer on the first token's hidden state that some Transformers, such as BERT, end with. The *source*
is the model that the student starts from, usually its teacher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from limbeck.models.pooler import pooler_option
from limbeck.models.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def add_pooler(
    student: PreTrainedModel, source: PreTrainedModel | None, seed: int
) -> tuple[PreTrainedModel, list[str]]:
    """Return a student with the pooler that its class has by default, so that loading it leaves nothing at random.

    Students are built without a pooler, since no training reads it.

    Args:
        student: The student; left as it is.
        source: A model whose pooler is copied. None, or a model of another width, leaves random values.
        seed: Decides the random values.

    Returns:
        The student to save, and the names of the pooler's parameters; the student itself where there is no pooler.
    """
    if not pooler_option(type(student)):
        return student, []
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        config = type(student.config)(**student.config.to_dict())
        whole = type(student)._from_config(config, dtype=torch.float32)

    # The student's parameters, and those of the source for the pooler, which the student lacks.
    student_parameters = dict(student.named_parameters())
    source_parameters = {} if source is None else dict(source.named_parameters())
    pooler_names = []
    for name, parameter in whole.named_parameters():
        if name.startswith("pooler."):
            pooler_names.append(name)
        value = student_parameters.get(name, source_parameters.get(name))
        if value is not None and value.shape == parameter.shape:
            parameter.copy_(value)
    return whole.eval(), pooler_names
