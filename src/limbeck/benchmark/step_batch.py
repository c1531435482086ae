"""Random batches of a training step, with the tensors that the collator of a run would give.

The *labels* of a step are of a kind, as `PadCollator` names it: "token" (a label for each token), "class", "classes"
(several labels a row), "value", "span" (first and last token of an answer), "relevance" (of documents for a query) or
"none".
"""

import torch
from torch import Tensor

from limbeck.benchmark.step_setup import StepSetup
from limbeck.core import IGNORED_LABEL


def make_batch(setup: StepSetup, index: int = 0) -> dict[str, Tensor]:
    """Draw a batch of random tokens, padded on the right, on the CPU.

    Args:
        setup: The step that reads the batch.
        index: The number of the micro-batch in the step, which is the seed.

    Returns:
        `input_ids` and `attention_mask`, `[B, L]` each, and `labels` if the step has labels. If rows are documents that
        are ranked for queries, there are `groups` instead, `[B]`: the query of each row, with two rows for each query.
    """
    generator = torch.Generator().manual_seed(index)
    rows = setup.batch
    longest = setup.length
    lengths = torch.full((rows, 1), longest)
    if setup.ragged:
        lengths = torch.randint(max(1, longest // 2), longest + 1, (rows, 1), generator=generator)
        longest = int(lengths.max())
    # [L] < [B, 1] -> [B, L].
    valid = torch.arange(longest) < lengths
    # Both models read the same token ids.
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
        ids: Token ids `[B, L]`.
        valid: Bool `[B, L]`, True for real tokens.
        generator: The generator of random numbers.

    Returns:
        Labels in the form of the step's kind: `[B, L]` for tokens, `[B]` for classes and values, `[B, classes]` where a
        row has several classes, `[B, 2]` for answers.
    """
    rows, length = ids.shape
    classes = int(setup.teacher.num_labels)
    if setup.labels == "token" and setup.masked:
        # A masked language model predicts some tokens: each of these is its own label. At least one is chosen, since a
        # loss without any label is undefined.
        chosen = valid & (torch.rand(rows, length, generator=generator) < setup.masked)
        chosen[0, 0] = True
        return ids.masked_fill(~chosen, IGNORED_LABEL)
    if setup.labels == "token":
        # Each token is taken for a word with a tag.
        tags = torch.randint(0, classes, (rows, length), generator=generator)
        return tags.masked_fill(~valid, IGNORED_LABEL)
    if setup.labels == "class":
        return torch.randint(0, classes, (rows,), generator=generator)
    if setup.labels == "classes":
        return torch.randint(0, 2, (rows, classes), generator=generator).float()
    if setup.labels == "value":
        return torch.rand(rows, generator=generator)
    # Answers to questions: two tokens of the row, sorted so that the first token of the answer precedes the last.
    lengths = valid.sum(1, keepdim=True)
    ends = (torch.rand(rows, 2, generator=generator) * lengths).long()
    return ends.sort(-1).values
