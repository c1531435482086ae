"""How far an exported model's outputs are from its source's, over batches of sample text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.core.progress import Count, Report, quietly
from limbeck.errors import LimbeckError
from limbeck.export.batches import Batch
from limbeck.export.outputs import ANSWER_ENDS, HIDDEN, LOGITS, SENTENCE, is_per_token
from limbeck.export.source import ExportHead

Runner: TypeAlias = Callable[[Batch], dict[str, Tensor]]
"""Runs a model on a batch: output name to float32 tensor on the CPU."""
BOUNDS = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.25}
"""Largest difference of an output, as a share of its largest value (of 1 where that is smaller), by dtype."""
LEAST_COSINE, LEAST_EQUAL = 0.95, 0.9
"""What int8 weights must keep of the source: the mean cosine of its vectors, or the share of its decisions."""
_NEVER = -1e9


class ExportMismatchError(LimbeckError):
    """An export that was made, and does not give what its source gives."""

    exit_code = 1


@dataclass(frozen=True)
class Differences:
    """An exported model beside its source; padding is not compared.

    Attributes:
        texts: How many texts.
        batches: In how many batches; a text may be in several.
        tokens: Of the longest row.
        largest: Output to its largest absolute difference.
        scale: Output to the largest absolute value of the source.
        cosine: Mean and lowest cosine of the vectors, sentence vectors where there are some, else those of tokens;
            empty with a head.
        equal_decisions: Share of rows (tokens, texts, answer ends) with the same most probable class; None without
            classes.
        mean_kl: Mean `KL(source || export)` of their class probabilities in nats; None without classes.
    """

    texts: int
    batches: int
    tokens: int
    largest: dict[str, float]
    scale: dict[str, float]
    cosine: dict[str, float] = field(default_factory=dict)
    equal_decisions: float | None = None
    mean_kl: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, fit for JSON."""
        return asdict(self)

    def relative(self) -> float:
        """Return the largest difference of all outputs, each as a share of its scale, or of 1 where that is below."""
        shares = [value / max(1.0, self.scale[name]) for name, value in self.largest.items()]
        return float("nan") if any(share != share for share in shares) else max(shares)


def measure_differences(
    source: Runner, export: Runner, batches: Sequence[Batch], head: ExportHead | None, report: Report = quietly
) -> Differences:
    """Run both models on the same batches.

    Args:
        source: Gives what is right.
        export: What is measured; outputs that it does not give are not compared.
        batches: Sample text.
        head: The head of both.
        report: Is told how far it is.
    """
    texts: set[Any] = set()
    count = longest = 0
    gaps: dict[str, list[Tensor]] = {}
    scales: dict[str, list[Tensor]] = {}
    cosines: list[Tensor] = []
    equal: list[Tensor] = []
    divergence: list[Tensor] = []
    for batch in batches:
        report(count / len(batches), "Comparing with the source", Count(count, "batches"))
        wanted, given = source(batch), export(batch)
        texts.update(batch.texts)
        count, longest = count + 1, max(longest, int(batch.valid.sum(1).max()))
        for name, got in given.items():
            want, valid = wanted[name], batch.valid
            per_token = is_per_token(name, head)
            real = (want[valid], got[valid]) if per_token else (want, got)
            gaps.setdefault(name, []).append((real[0] - real[1]).abs().max())
            scales.setdefault(name, []).append(real[0].abs().max())
            if name == SENTENCE or (name == HIDDEN and SENTENCE not in given):
                cosines.append(F.cosine_similarity(*real, dim=-1))
            if name in ANSWER_ENDS:
                real = (want.masked_fill(~valid, _NEVER), got.masked_fill(~valid, _NEVER))
            if name in (LOGITS, *ANSWER_ENDS) and head != "regression":
                equal.append(real[0].argmax(-1) == real[1].argmax(-1))
                divergence.append(_kl(*real))
    return Differences(
        texts=len(texts),
        batches=count,
        tokens=longest,
        largest={name: float(torch.stack(found).max()) for name, found in gaps.items()},
        scale={name: float(torch.stack(found).max()) for name, found in scales.items()},
        cosine=_mean_and_lowest(cosines),
        equal_decisions=float(torch.cat(equal).float().mean()) if equal else None,
        mean_kl=float(torch.cat(divergence).mean()) if divergence else None,
    )


def check_differences(found: Differences, dtype: str) -> None:
    """Refuse an export of floating-point weights whose outputs are too far from its source's.

    Args:
        found: As measured.
        dtype: Of the exported weights: a key of `BOUNDS`.

    Raises:
        ExportMismatchError: with the difference and the bound.
    """
    relative, bound = found.relative(), BOUNDS[dtype]
    if relative <= bound:  # False for NaN too.
        return
    worst = max(found.largest, key=lambda name: _or_infinity(found.largest[name] / max(1.0, found.scale[name])))
    way_out = "; use float32" if dtype != "float32" else "; it is not written, please report the model"
    raise ExportMismatchError(
        f"The export differs from its source by {found.largest[worst]:.3g} in {worst}, whose largest value is "
        f"{found.scale[worst]:.3g}; in {dtype} {bound:g} of that (or of 1) is allowed{way_out}."
    )


def check_int8_quality(found: Differences) -> None:
    """Refuse an int8 export that keeps too little of its source.

    Raises:
        ExportMismatchError: with what was kept and the bound.
    """
    kept, bound, what = found.cosine.get("mean"), LEAST_COSINE, "mean cosine of the vectors"
    if found.equal_decisions is not None:
        kept, bound, what = found.equal_decisions, LEAST_EQUAL, "share of equal decisions"
    elif kept is None:
        kept, bound, what = 1 - found.relative(), LEAST_EQUAL, "share of the largest value that is kept"
    if not kept >= bound:
        raise ExportMismatchError(
            f"With int8 weights the {what} is {kept:.3f}, below {bound:g}; export the model with --format onnx."
        )


def _kl(source: Tensor, export: Tensor) -> Tensor:
    """KL divergence of the last axis' softmaxes, per row, in float64."""
    p, q = (F.log_softmax(logits.double(), dim=-1) for logits in (source, export))
    return (p.exp() * (p - q)).sum(-1).flatten()


def _mean_and_lowest(parts: list[Tensor]) -> dict[str, float]:
    if not parts:
        return {}
    values = torch.cat(parts)
    return {"mean": float(values.mean()), "lowest": float(values.min())}


def _or_infinity(value: float) -> float:
    return float("inf") if value != value else value
