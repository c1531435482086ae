"""Random batches of a training step, as a collator would give them."""

import torch
from torch import Tensor

from limbeck.benchmark.step_setup import StepSetup
from limbeck.core import IGNORED_LABEL


def make_batch(setup: StepSetup, index: int = 0) -> dict[str, Tensor]:
    """Draw a batch of random tokens, padded on the right; on the CPU.

    Args:
        setup: The step that reads it.
        index: The number of the micro-batch in the step.

    Returns:
        `input_ids` and `attention_mask`, `[B, L]` each. `groups`, `[B]`, where rows are documents of queries, two a
        query. `labels` where the step has labels.
    """
    generator = torch.Generator().manual_seed(index)
    rows = setup.batch
    longest = setup.length
    lengths = torch.full((rows, 1), longest)
    if setup.ragged:
        lengths = torch.randint(max(1, longest // 2), longest + 1, (rows, 1), generator=generator)
        longest = int(lengths.max())
    valid = torch.arange(longest) < lengths
    vocabulary = min(setup.student_shape.vocabulary, setup.teacher_shape.vocabulary)
    ids = torch.randint(0, vocabulary, (rows, longest), generator=generator)
    padding_id = int(getattr(setup.student, "pad_token_id", None) or 0)
    batch = {"input_ids": ids.masked_fill(~valid, padding_id), "attention_mask": valid.long()}
    if setup.labels == "relevance":
        batch["groups"] = torch.arange(rows) // 2
    elif setup.labels != "none":
        batch["labels"] = _random_labels(setup, ids, valid, generator)
    return batch


def _random_labels(setup: StepSetup, ids: Tensor, valid: Tensor, generator: torch.Generator) -> Tensor:
    """Draw the labels of a batch.

    Args:
        setup: The step that reads them.
        ids: Tokens [rows, length].
        valid: Tokens that are no padding [rows, length].
        generator: The generator of random numbers.
    """
    rows, length = ids.shape
    classes = int(setup.teacher.num_labels)
    if setup.labels == "token" and setup.masked:
        # A masked language model: a chosen token is its own label, at least one of them.
        chosen = valid & (torch.rand(rows, length, generator=generator) < setup.masked)
        chosen[0, 0] = True
        return ids.masked_fill(~chosen, IGNORED_LABEL)
    if setup.labels == "token":
        # Tagged words, each of one token.
        tags = torch.randint(0, classes, (rows, length), generator=generator)
        return tags.masked_fill(~valid, IGNORED_LABEL)
    if setup.labels == "class":
        return torch.randint(0, classes, (rows,), generator=generator)
    if setup.labels == "classes":
        return torch.randint(0, 2, (rows, classes), generator=generator).float()
    if setup.labels == "value":
        return torch.rand(rows, generator=generator)
    # The first and the last token of an answer, in order.
    lengths = valid.sum(1, keepdim=True)
    return (torch.rand(rows, 2, generator=generator) * lengths).long().sort(-1).values
