"""How far the student's attention is from the teacher's: the mean divergence of every pair of layers, head by head.

Axis letters: B batch, A attention heads, L tokens, S/T number of student and teacher layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.core.progress import Report, quietly
from limbeck.evaluation.inference import evaluation_mode
from limbeck.inspection.attention_rules import attention_keys, attention_rules, check_rebuilt, rebuild
from limbeck.inspection.batches import batches, shortest_limit, tokenise
from limbeck.inspection.subject import Subject, check_comparable
from limbeck.models.families import heads
from limbeck.models.taps import StreamTap

_ENTRIES = 2**18  # of a map, over the rows of a batch


@dataclass(frozen=True)
class AttentionDivergence:
    """Every layer of the student beside every layer of the teacher.

    Attributes:
        student: The student's name.
        teacher: The teacher's name.
        by_head: Whether heads are compared one by one; else it is the maps' mean over heads, since the models differ in
            their number.
        values: `values[s][t][a]` is the mean of KL(teacher || student) over the tokens, in nats, for student layer
            s + 1, teacher layer t + 1 and head a + 1 (one entry unless `by_head`). NaN where the student's layer cannot
            see a token that the teacher's sees.
        tokens: Tokens that the means are over.
        cut: Texts that were cut to the longest length.
    """

    student: str
    teacher: str
    by_head: bool
    values: tuple[tuple[tuple[float, ...], ...], ...]
    tokens: int
    cut: int

    @property
    def means(self) -> tuple[tuple[float, ...], ...]:
        """The mean over heads for every pair of layers, `[S, T]`."""
        return tuple(tuple(math.fsum(pair) / len(pair) for pair in row) for row in self.values)

    @property
    def nearest(self) -> tuple[int, ...]:
        """For every layer of the student, from 1, the teacher layer with the lowest mean, from 1."""
        known = [[math.inf if math.isnan(mean) else mean for mean in row] for row in self.means]
        return tuple(row.index(min(row)) + 1 for row in known)


@torch.no_grad()
def measure_divergence(
    student: Subject, teacher: Subject, texts: Sequence[str], *, length: int = 128, report: Report = quietly
) -> AttentionDivergence:
    """Measure the mean divergence of attention distributions over some texts, all pairs of layers at once.

    For each real token KL(teacher || student) = sum of p_T (log p_T - log p_S) over the tokens it looks at; padding
    takes no part. The mean is over all tokens of all texts, as in MiniLM (arXiv 2002.10957, section 3.1).

    Args:
        student: A model.
        teacher: Another with the same tokenizer.
        texts: Any number.
        length: Longest input in tokens, special tokens included; lowered to what both models can take.
        report: Is told how far it is.

    Raises:
        ModelError: if the two read text differently, or a model's attention cannot be rebuilt.
        CorpusError: if the texts hold no token.
    """
    check_comparable(student, teacher)
    rows = tokenise(student.tokenizer, texts, shortest_limit(length, student.longest, teacher.longest))
    longest = max(map(len, rows.ids))
    by_head = heads(student.model.config) == heads(teacher.model.config)
    entropy, cross, tokens = torch.zeros(()), torch.zeros(()), 0
    size = max(1, _ENTRIES // longest**2)
    for number, batch in enumerate(
        batches(rows.ids, student.tokenizer, device=student.device, batch_size=size, report=report, what="Attention")
    ):
        both = []
        for subject in (student, teacher):
            layers = range(1, subject.layers + 1)
            if number == 0:
                check_rebuilt(subject, batch, layers)
            with evaluation_mode(subject.model), StreamTap(subject.model, attention_keys(layers)) as tap:
                streams = tap(**batch.inputs)
            rules = attention_rules(subject)
            maps = torch.stack([rebuild(streams, layer, batch.valid, rules[layer - 1]) for layer in layers])
            both.append(maps if by_head else mean_over_heads(maps))
        of_teacher, of_both = divergence_sums(both[0], both[1], batch.valid.to(student.device))
        entropy, cross = entropy + of_teacher.cpu(), cross + of_both.cpu()
        tokens += int(batch.valid.sum())
    values = (entropy[None] + cross) / tokens
    for s, ours in enumerate(attention_rules(student)):
        for t, theirs in enumerate(attention_rules(teacher)):
            if not ours.sees_all_of(theirs, longest):
                values[s, t] = float("nan")
    found = tuple(tuple(tuple(pair) for pair in row) for row in values.tolist())
    return AttentionDivergence(student.name, teacher.name, by_head, found, tokens, rows.cut)


def mean_over_heads(maps: Tensor) -> Tensor:
    """Average log probabilities over heads, as probabilities: `[layers, B, A, L, L]` to `[layers, B, 1, L, L]`."""
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
