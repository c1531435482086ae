"""Divergence of the student's attention from the teacher's: the mean of every pair of layers, head by head.

An attention map holds, for each token of a text, a distribution over the tokens that it attends to. Two maps are
compared by KL(teacher || student) = -H(p_T) + H(p_T, p_S), the cross-entropy of the two less the teacher's entropy.

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

_MOST_ENTRIES = 2**18
"""Entries that the maps of one head of one layer may have in a batch of B texts: B x L x L. It bounds the memory."""


@torch.no_grad()
def measure_divergence(
    student: Subject, teacher: Subject, texts: Sequence[str], *, length: int = 128, report: Report = no_progress
) -> AttentionDivergence:
    """Measure the mean divergence of attention distributions over some texts, all pairs of layers at once.

    For each real token KL(teacher || student) = sum of p_T (log p_T - log p_S) over the tokens it looks at; padding
    takes no part. The mean is over all tokens of all texts, as in MiniLM (arXiv 2002.10957, section 3.1).

    Args:
        student: A model.
        teacher: Another model with the same tokenizer.
        texts: The texts to read, one or more.
        length: Longest input in tokens, special tokens included; lowered to what both models can take.
        report: Receives progress.

    Returns:
        The divergences, head by head where both models have the same number of heads, else of the maps' mean over
        heads. A pair of layers is NaN where the teacher's layer sees tokens that the student's layer cannot see.

    Raises:
        ModelError: if the two read text differently, or a model's attention cannot be rebuilt.
        CorpusError: if the texts hold no token.
    """
    check_comparable(student, teacher)
    rows = tokenise(student.tokenizer, texts, limits=(length, student.longest, teacher.longest))
    longest = max(len(row) for row in rows.ids)
    # Heads can be compared one by one only if both models have the same number of them.
    by_head = shape_of(student.model.config).heads == shape_of(teacher.model.config).heads
    batch_size = max(1, _MOST_ENTRIES // longest**2)
    token_batches = batches(
        rows.ids, student.tokenizer, device=student.device, batch_size=batch_size, report=report, what="Attention"
    )

    # Sums over tokens. From the first batch on, they have the shapes [T, A] and [S, T, A], for S layers of the student,
    # T layers of the teacher, and A heads; A is 1 where the maps are means over heads.
    negative_entropy = torch.zeros(())
    cross_entropy = torch.zeros(())
    tokens = 0
    for number, batch in enumerate(token_batches):
        # Attention is rebuilt from queries and keys, which some families do not allow. The first batch is enough to
        # know it, so a model of these families is refused before the other batches are read.
        if number == 0:
            for subject in (student, teacher):
                check_rebuilt(subject, batch, range(1, subject.layers + 1))
        student_maps = _maps_of_layers(student, batch, by_head=by_head)
        teacher_maps = _maps_of_layers(teacher, batch, by_head=by_head)
        valid = batch.valid.to(student.device)
        batch_negative_entropy, batch_cross_entropy = divergence_sums(student_maps, teacher_maps, valid)
        negative_entropy = negative_entropy + batch_negative_entropy.cpu()
        cross_entropy = cross_entropy + batch_cross_entropy.cpu()
        tokens += int(batch.valid.sum())

    # [1, T, A] + [S, T, A] -> [S, T, A], the mean KL of a token.
    divergences = (negative_entropy[None] + cross_entropy) / tokens
    # Where the teacher attends to a token that the student cannot see, such as one outside its window, KL is infinite.
    # No divergence is given for such a pair of layers.
    for student_index, student_rule in enumerate(attention_rules(student)):
        for teacher_index, teacher_rule in enumerate(attention_rules(teacher)):
            if not student_rule.sees_all_of(teacher_rule, longest):
                divergences[student_index, teacher_index] = float("nan")
    values = tuple(tuple(tuple(heads) for heads in row) for row in divergences.tolist())
    return AttentionDivergence(
        student=student.name,
        teacher=teacher.name,
        by_head=by_head,
        values=values,
        tokens=tokens,
        cut=rows.cut,
    )


def _maps_of_layers(subject: Subject, batch: Batch, *, by_head: bool) -> Tensor:
    """Return a model's attention maps as log probabilities, `[layers, B, A, L, L]`.

    Args:
        subject: The model.
        batch: The texts that it reads.
        by_head: Return every head; else the mean over the heads, and A is 1.
    """
    maps = torch.stack(read_attention(subject, batch, range(1, subject.layers + 1)))
    if by_head:
        return maps
    # The mean is taken of probabilities: log(sum over heads of exp(map) / A).
    heads = maps.shape[2]
    return maps.logsumexp(2, keepdim=True) - math.log(heads)


def divergence_sums(student: Tensor, teacher: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Sum the two halves of KL(teacher || student) over the real tokens of a batch.

    The last two axes of a map are the attending token and the attended token.

    Args:
        student: Log probabilities `[S, B, A, L, L]`; -inf where a token is not seen.
        teacher: Log probabilities `[T, B, A, L, L]`.
        valid: Bool `[B, L]`, True for real tokens.

    Returns:
        The teacher's negative entropy, the sum of p_T log p_T, `[T, A]`; and the cross-entropy, the sum of
        -p_T log p_S, `[S, T, A]`. Both are float64. A token that the student cannot see adds nothing to the second.
    """
    # Entries of padding and of unseen tokens are set to 0. A product with 0 would not do, since 0 times -inf is NaN.
    padding = ~valid[:, None, :, None]
    probabilities = teacher.exp().masked_fill(padding, 0.0)
    log_probabilities = student.masked_fill(padding | (student == float("-inf")), 0.0)
    # `entr` is -p log p, and 0 for p = 0. The sum is over texts and both token axes.
    negative_entropy = -torch.special.entr(probabilities).sum((1, 3, 4), dtype=torch.float64)
    cross_entropy = -torch.einsum("tbaij,sbaij->sta", probabilities, log_probabilities).double()
    return negative_entropy, cross_entropy
