"""Factors of 0 and 1 that dropout multiplies by, from streams that can be started again from their seeds.

PyTorch's Bernoulli on a CPU takes 64 serial bits of a Mersenne twister for every element. Here each element takes 16
bits of an SFC64 stream, several times faster. The seed of a stream comes from PyTorch's own generator: the same
`torch.manual_seed` gives the same factors, and a restored generator state goes on with them.
"""

import numpy as np
import torch
from torch import Tensor

_LEVELS = 1 << 16
_LOWEST = -(1 << 15)


def draw_seed() -> int:
    """Draw the seed of a stream from PyTorch's default generator, 0 to 2^62."""
    return int(torch.randint(1 << 62, ()))


def dropped_share(p: float) -> float:
    """The share that a keep factor is 0 for: `p` in steps of 2^-16.

    Survivors are scaled by 1 / (1 - this), so that dropout keeps the mean exactly.
    """
    return round(p * _LEVELS) / _LEVELS


def stream(seed: int, part: int = 0) -> np.random.SFC64:
    """Return the generator of a stream of random bits, at its beginning."""
    return np.random.SFC64([seed, part])


def kept_from(p: float) -> int:
    """Return the number below which bits, read as a signed number, drop an element."""
    return _LOWEST + round(p * _LEVELS)


class KeepFactors:
    """A stream of factors that are 0 with probability `dropped_share(p)` and else 1.

    Args:
        p: Dropout probability, 0 to 1.
        seed: Of the stream, see `draw_seed`.
        part: Number of the stream; streams of one seed are independent.
    """

    def __init__(self, p: float, seed: int, part: int = 0) -> None:
        self._bits = np.random.Generator(stream(seed, part))
        self._kept_from = kept_from(p)

    def fill(self, out: Tensor) -> Tensor:
        """Write the next factors of the stream.

        Args:
            out: Floating point, on the CPU and contiguous, of any shape.

        Returns:
            `out`.
        """
        words = self._bits.integers(0, (1 << 64) - 1, size=-(-out.numel() // 4), dtype=np.uint64, endpoint=True)
        bits = torch.from_numpy(words.view(np.int16))[: out.numel()].view(out.shape)
        # Arithmetic on whole numbers, exact in float32, vectorises where a comparison does not.
        wide = out if out.dtype in (torch.float32, torch.float64) else torch.empty(out.shape)
        wide.copy_(bits).sub_(self._kept_from - 1).clamp_(0, 1)
        return out if wide is out else out.copy_(wide)


def scale_by_factors(x: Tensor, p: float, seed: int) -> Tensor:
    """Return `x` with the elements that a stream drops at 0, and the others scaled by 1 / (1 − p)."""
    factors = KeepFactors(p, seed).fill(torch.empty(x.shape, dtype=x.dtype))
    return factors.mul_(1 / (1 - dropped_share(p))).mul_(x)
