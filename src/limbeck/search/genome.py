"""A layer mapping as bits: one code of k bits for each student layer.

Source: ELM (Jiao et al. 2021, arXiv 2012.06153) section 4.2.
"""

from __future__ import annotations

from typing import TypeAlias

Genome: TypeAlias = tuple[int, ...]
"""The code of each student layer, first layer first, each in [0, 2^k - 1]."""


def bits_per_layer(student: int, teacher: int) -> int:
    """Return k, the smallest integer with 2^k > 2 N / M.

    Args:
        student: The student's depth M, at least 1.
        teacher: The teacher's depth N, at least 1.
    """
    return (2 * teacher // student).bit_length()


def to_binary(genome: Genome, bits: int) -> str:
    """Write a genome as the paper does, for example `"000-000-010-101"`."""
    return "-".join(f"{code:0{bits}b}" for code in genome)


def from_binary(text: str) -> Genome:
    """Read what `to_binary` wrote.

    Raises:
        ValueError: for anything but groups of 0 and 1 joined by hyphens.
    """
    return tuple(int(code, base=2) for code in text.split("-"))


def flip_bits(genome: Genome, flips: Genome) -> Genome:
    """Flip the bits of each code that are set in `flips`."""
    return tuple(code ^ flip for code, flip in zip(genome, flips, strict=True))
