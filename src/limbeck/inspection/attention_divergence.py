"""Divergence of the student's attention from the teacher's: the mean of every pair of layers, head by head.

Axis letters: B batch, A attention heads, L tokens, S/T number of student and teacher layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from limbeck.core.progress import Report, no_progress
from limbeck.inspection.attention_rule import attention_rules, check_rebuilt, read_attention
from limbeck.inspection.results import AttentionDivergence
from limbeck.inspection.subject import Subject, check_comparable
from limbeck.inspection.texts import tokenise
from limbeck.models.families import shape_of
from limbeck.models.inference import Batch, batches

_ENTRIES = 2**18
"""Entries of the maps of one head and layer, over the rows of a batch: L x L a row."""


@torch.no_grad()
def measure_divergence(
    student: Subject, teacher: Subject, texts: Sequence[str], *, length: int = 128, report: Report = no_progress
) -> AttentionDivergence:
    """Measure the mean divergence of attention distributions over some texts, all pairs of layers at once.

    For each real token KL(teacher || student) = sum of p_T (log p_T - log p_S) over the tokens it looks at; padding
    takes no part. The mean is over all tokens of all texts, as in MiniLM (arXiv 2002.10957, section 3.1).

    Args:
        student: A model.
        teacher: Another with the same tokenizer.
        texts: Any number.
        length: Longest input in tokens, special tokens included; lowered to what both models can take.
        report: Receives progress.

    Raises:
        ModelError: if the two read text differently, or a model's attention cannot be rebuilt.
        CorpusError: if the texts hold no token.
    """
    check_comparable(student, teacher)
    rows = tokenise(student.tokenizer, texts, limits=(length, student.longest, teacher.longest))
    longest = max(len(row) for row in rows.ids)
    by_head = shape_of(student.model.config).heads == shape_of(teacher.model.config).heads
    size = max(1, _ENTRIES // longest**2)
    token_batches = batches(
        rows.ids, student.tokenizer, device=student.device, batch_size=size, report=report, what="Attention"
    )

    entropy = torch.zeros(())
    cross = torch.zeros(())
    tokens = 0
    for number, batch in enumerate(token_batches):
        # The first batch is enough to know whether attention can be rebuilt.
        if number == 0:
            for subject in (student, teacher):
                check_rebuilt(subject, batch, range(1, subject.layers + 1))
        student_maps = _maps_of_layers(student, batch, by_head=by_head)
        teacher_maps = _maps_of_layers(teacher, batch, by_head=by_head)
        batch_entropy, batch_cross = divergence_sums(student_maps, teacher_maps, batch.valid.to(student.device))
        entropy = entropy + batch_entropy.cpu()
        cross = cross + batch_cross.cpu()
        tokens += int(batch.valid.sum())

    values = (entropy[None] + cross) / tokens
    for s, student_rule in enumerate(attention_rules(student)):
        for t, teacher_rule in enumerate(attention_rules(teacher)):
            if not student_rule.sees_all_of(teacher_rule, longest):
                values[s, t] = float("nan")
    by_pair = tuple(tuple(tuple(heads) for heads in row) for row in values.tolist())
    return AttentionDivergence(student.name, teacher.name, by_head, by_pair, tokens, rows.cut)


def _maps_of_layers(subject: Subject, batch: Batch, *, by_head: bool) -> Tensor:
    """Return the log probabilities of all layers, `[N, B, A, L, L]`; A is 1 for the mean of the heads."""
    maps = torch.stack(read_attention(subject, batch, range(1, subject.layers + 1)))
    if by_head:
        return maps
    # The mean over heads is one of probabilities.
    return maps.logsumexp(2, keepdim=True) - math.log(maps.shape[2])


def divergence_sums(student: Tensor, teacher: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the two halves of KL(teacher || student) over the real tokens of a batch.

    Args:
        student: Log probabilities `[S, B, A, L, L]`; -inf where a token is not seen.
        teacher: Log probabilities `[T, B, A, L, L]`.
        valid: Bool `[B, L]`.

    Returns:
        The sum of p_T log p_T, `[T, A]`, and that of -p_T log p_S, `[S, T, A]`, float64. Where the student cannot see a
        token, it adds nothing to the second.
    """
    # Filled, not multiplied: neither what padding holds nor 0 times -inf must leak.
    padding = ~valid[:, None, :, None]
    probabilities = teacher.exp().masked_fill(padding, 0.0)
    seen = student.masked_fill(padding | (student == float("-inf")), 0.0)
    entropy = -torch.special.entr(probabilities).sum((1, 3, 4), dtype=torch.float64)
    cross = torch.einsum("tbaij,sbaij->sta", probabilities, seen)
    return entropy, -cross.double()
