"""Differences of an export's outputs from those of its source: measured, and refused beyond their bounds."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from limbeck.core.exports import Differences
from limbeck.core.kinds import kind_of
from limbeck.core.progress import Count, Report, no_progress
from limbeck.errors import LimbeckError
from limbeck.export.batches import Batch, Runner
from limbeck.export.source import ANSWER_ENDS, HIDDEN, LOGITS, SENTENCE, is_per_token
from limbeck.models import heads

BOUNDS = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.25}
"""Largest difference of an output, as a share of its largest value (of 1 where that is smaller), by dtype."""

LEAST_COSINE, LEAST_EQUAL = 0.95, 0.9
"""What int8 weights must keep of the source: the mean cosine of its vectors, or the share of its decisions."""

_NEVER = -1e9


class ExportMismatchError(LimbeckError):
    """An export whose outputs are not those of its source."""

    exit_code = 1


def measure_differences(
    source: Runner, export: Runner, batches: Sequence[Batch], head: heads.Head | None, report: Report = no_progress
) -> Differences:
    """Run both models on the same batches.

    Args:
        source: The reference.
        export: The model that is measured; outputs that it does not give are not compared.
        batches: Sample text.
        head: The head of both.
        report: Receives progress.
    """
    gaps: dict[str, list[Tensor]] = {}
    scales: dict[str, list[Tensor]] = {}
    cosines: list[Tensor] = []
    equal: list[Tensor] = []
    divergence: list[Tensor] = []
    for count, batch in enumerate(batches):
        report(count / len(batches), "Comparing with the source", Count(count, "batches"))
        wanted, given = source(batch), export(batch)
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
            if kind_of(head).has_several:
                # Each class is a decision by itself, as between scores z and 0.
                real = (_with_zero(real[0]), _with_zero(real[1]))
            if name in (LOGITS, *ANSWER_ENDS) and not kind_of(head).has_value:
                equal.append(real[0].argmax(-1) == real[1].argmax(-1))
                divergence.append(_kl(*real))
    vectors = torch.cat(cosines) if cosines else torch.zeros(0)
    return Differences(
        texts=len({text for batch in batches for text in batch.texts}),
        batches=len(batches),
        tokens=max((int(batch.valid.sum(1).max()) for batch in batches), default=0),
        largest={name: float(torch.stack(found).max()) for name, found in gaps.items()},
        scale={name: float(torch.stack(found).max()) for name, found in scales.items()},
        cosine={"mean": float(vectors.mean()), "lowest": float(vectors.min())} if cosines else {},
        equal_decisions=float(torch.cat(equal).float().mean()) if equal else None,
        mean_kl=float(torch.cat(divergence).mean()) if divergence else None,
    )


def check_differences(found: Differences, dtype: str, *, bound: float | None = None) -> None:
    """Refuse an export of floating-point weights whose outputs are too far from its source's.

    Args:
        found: As measured.
        dtype: Of the exported weights: a key of `BOUNDS`.
        bound: Another than that of the dtype.

    Raises:
        ExportMismatchError: with the difference and the bound.
    """
    (share, worst), bound = largest_share(found), BOUNDS[dtype] if bound is None else bound
    if share <= bound:
        return
    way_out = "; use float32" if dtype != "float32" else "; it was not written: please report the model"
    raise ExportMismatchError(
        f"The export differs from its source by {found.largest[worst]:.3g} in {worst}, whose largest value is "
        f"{found.scale[worst]:.3g}; in {dtype} {bound:g} of that (or of 1) is the limit{way_out}."
    )


def check_int8_quality(found: Differences) -> None:
    """Refuse an int8 export that keeps too little of its source.

    Raises:
        ExportMismatchError: with the share that was kept and the bound.
    """
    kept, bound, what = found.cosine.get("mean"), LEAST_COSINE, "mean cosine of the vectors"
    if found.equal_decisions is not None:
        kept, bound, what = found.equal_decisions, LEAST_EQUAL, "share of equal decisions"
    elif kept is None:
        kept, bound, what = 1 - largest_share(found)[0], LEAST_EQUAL, "share of the largest value that is kept"
    if not kept >= bound:  # True for NaN too.
        raise ExportMismatchError(
            f"With int8 weights the {what} is {kept:.3f}, below {bound:g}; export the model with --format onnx."
        )


def largest_share(found: Differences) -> tuple[float, str]:
    """Return the largest difference as a share of its output's scale, or of 1 where that is below; and the output.

    Where a difference is no number the share is infinite.
    """
    shares = {
        name: math.inf if value is None or math.isnan(value) else value / max(1.0, found.scale[name] or 0.0)
        for name, value in found.largest.items()
    }
    return max((share, name) for name, share in shares.items())


def _with_zero(logits: Tensor) -> Tensor:
    return torch.stack([logits, torch.zeros_like(logits)], -1)


def _kl(source: Tensor, export: Tensor) -> Tensor:
    """KL divergence of the last axis' softmaxes, per row, in float64."""
    p, q = (F.log_softmax(logits.double(), dim=-1) for logits in (source, export))
    return (p.exp() * (p - q)).sum(-1).flatten()
