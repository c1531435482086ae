"""`LengthSchedule`: lengths of blocks that follow each other in one training, the shortest first."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from limbeck.errors import CorpusError

_EPOCHS = re.compile(r"^(\d{1,6}(?:\.\d{1,6})?) epochs?$")


@dataclass(frozen=True)
class LengthSchedule:
    """Lengths of the blocks of one training, one after the other, each with a share of the steps or a number of epochs.

    If length i has the share s_i of S steps, it ends after step (s_1 + ... + s_i) S, rounded. If it has e_i epochs and
    an epoch of the text has N_i steps at this length, it takes e_i N_i steps, rounded up. If the number of steps of the
    training is given as well, the steps are divided in proportion to these.

    Args:
        lengths: Most tokens in a block, in rising order.
        parts: Share or epochs of each length.
        in_epochs: Whether the parts are epochs.

    Source:
        ELM (arXiv 2012.06153), section 5.2: three epochs of length 128, then two of 512; BERT (arXiv 1810.04805),
        appendix A.2: 90 % of the steps with 128. Nearest alternative: a stage for each length, where the learning rate
        warms up and decays anew.
    """

    lengths: tuple[int, ...]
    parts: tuple[float, ...]
    in_epochs: bool

    @classmethod
    def read(cls, part_of_length: Mapping[int, float | str]) -> LengthSchedule:
        """Read the schedule of a recipe, such as `{128: 0.9, 512: 0.1}` or `{128: "3 epochs", 512: "2 epochs"}`.

        Raises:
            CorpusError: if there is only one length, lengths do not rise, a part is neither a share nor epochs, both
                are mixed, or shares do not add up to 1.
        """
        lengths = tuple(part_of_length)
        epochs = [_read_epochs(part) for part in part_of_length.values()]
        in_epochs = all(part is not None for part in epochs)

        parts = []
        for (length, part), part_in_epochs in zip(part_of_length.items(), epochs, strict=True):
            if part_in_epochs is not None:
                parts.append(_check_epochs(length, part, part_in_epochs))
            else:
                parts.append(_check_share(length, part))

        if len(lengths) < 2:
            raise CorpusError(
                f"lengths {dict(part_of_length)} has a single length, which is no schedule: give two lengths or "
                "more, or use 'length' alone."
            )
        if list(lengths) != sorted(lengths):
            raise CorpusError(
                f"lengths {list(lengths)} get shorter, but a schedule goes from short to long: reverse their order."
            )
        if not in_epochs and any(part is not None for part in epochs):
            raise CorpusError(
                f"lengths {dict(part_of_length)} mixes shares of the steps with epochs: give only shares, or only "
                "epochs."
            )
        total = math.fsum(parts)
        if not in_epochs and abs(total - 1) > 1e-6:
            raise CorpusError(
                f"The shares of 'lengths' add up to {total:g}, but must add up to 1: change some of them."
            )
        return cls(lengths, tuple(parts), in_epochs)

    def ends(self, max_steps: int, steps_an_epoch: Sequence[int] = ()) -> list[int]:
        """Return the last step of each length.

        Args:
            max_steps: Steps of the training. If it is not above 0, there are as many steps as the epochs have.
            steps_an_epoch: Steps of an epoch at each length. They are only needed for parts in epochs.

        Raises:
            CorpusError: if there are too few steps for every length to have one.
        """
        sizes: Sequence[float] = self.parts
        if self.in_epochs:
            pairs = zip(self.parts, steps_an_epoch, strict=True)
            # In floating point 2.1 epochs of 10 steps are 21.000000000000004 steps, so they are rounded before `ceil`.
            sizes = [math.ceil(round(epochs * steps, 6)) for epochs, steps in pairs]

        sizes_up_to_end = list(accumulate(sizes))
        total = max_steps if max_steps > 0 else int(sizes_up_to_end[-1])
        ends = [round(total * size / sizes_up_to_end[-1]) for size in sizes_up_to_end]
        for length, (begin, end) in zip(self.lengths, pairwise([0, *ends]), strict=True):
            if begin == end:
                raise CorpusError(
                    f"Length {length} gets none of the {total:,} steps: train more steps, or leave that length out."
                )
        return ends

    def __str__(self) -> str:
        """The schedule in words, such as `128 tokens for 3 epochs, then 512 tokens for 1 epoch`."""
        phrases = []
        for length, part in zip(self.lengths, self.parts, strict=True):
            if not self.in_epochs:
                amount = f"{part:g} of the steps"
            elif part == 1:
                amount = "1 epoch"
            else:
                amount = f"{part:g} epochs"
            phrases.append(f"{length} tokens for {amount}")
        return ", then ".join(phrases)


def _read_epochs(part: float | str) -> float | None:
    """The number in a text such as `3 epochs`; None for anything else."""
    if not isinstance(part, str):
        return None
    match = _EPOCHS.match(part)
    return None if match is None else float(match.group(1))


def _check_epochs(length: int, part: float | str, epochs: float) -> float:
    if not epochs > 0:
        raise _part_error(length, part)
    return epochs


def _check_share(length: int, part: float | str) -> float:
    if isinstance(part, str) or not 0 < part < 1:
        raise _part_error(length, part)
    return part


def _part_error(length: int, part: float | str) -> CorpusError:
    shown = f"'{part:.40}'" if isinstance(part, str) else f"{part:g}"
    return CorpusError(
        f"lengths.{length} is {shown}: give a share of the steps between 0 and 1, such as 0.9, or epochs, such as "
        "'3 epochs'."
    )
