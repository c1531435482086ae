"""ELM's space of layer mappings: its members, their number, and their encoding as k bits for each student layer.

A *mapping* is a tuple with one teacher layer for each student layer, 0 for none, as the paper writes it and as a
recipe's `mapping: [0, 0, 5, 10]` takes it. A *genome* is the same mapping as codes, one for each student layer, on
which the genetic algorithm works.

Source: ELM (Jiao et al. 2021, arXiv 2012.06153) section 4.2.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from limbeck.errors import RecipeError

Genome: TypeAlias = tuple[int, ...]
"""The code of each student layer, first layer first, each in [0, 2^k - 1]."""
MappingTuple: TypeAlias = tuple[int, ...]
"""The teacher layer of each student layer, first layer first, counted from 1; `NONE` for none."""
NONE = 0
"""Stands for the paper's None: this student layer learns from no teacher layer."""


def to_binary(genome: Genome, bits: int) -> str:
    """Write a genome as the paper does, for example `"000-000-010-101"`."""
    return "-".join(f"{code:0{bits}b}" for code in genome)


def from_binary(text: str) -> Genome:
    """Read what `to_binary` wrote.

    Raises:
        ValueError: for anything but groups of 0 and 1 joined by hyphens.
    """
    return tuple(int(code, base=2) for code in text.split("-"))


def show_mapping(mapping: Sequence[int]) -> str:
    """Write a mapping as the paper does: `(0, 0, 5, 10)`."""
    return f"({', '.join(map(str, mapping))})"


class Step(NamedTuple):
    """A choice for the next student layer of a mapping that is made layer by layer.

    Args:
        code: The choice as a genome has it.
        layer: The choice as a mapping has it: the teacher layer, or `NONE`.
        members: Number of members of the space that begin with the layers so far and this choice.
    """

    code: int
    layer: int
    members: int


@dataclass(frozen=True)
class MappingSpace:
    """A set of strictly increasing layer mappings (no crossing), each written in one way as a genome.

    Mappings are made layer by layer. The *floor* is the highest teacher layer that the student layers so far use, 0 for
    none; the teacher layers of those that follow must lie above it.

    Args:
        teacher: The teacher's depth N.
        bits: Bits of a code, k.
        choices: For each student layer, the teacher layer of each code, or `NONE`. A code that is left out means
            nothing, and a genome that has it is illegal.
    """

    teacher: int
    bits: int
    choices: tuple[dict[int, int], ...]

    @property
    def student(self) -> int:
        """The student's depth M."""
        return len(self.choices)

    @property
    def description(self) -> dict[str, object]:
        """The values that distinguish this space from others, as JSON holds them."""
        return {
            "student layers": self.student,
            "teacher layers": self.teacher,
            "choices": [list(choices.values()) for choices in self.choices],
        }

    @cached_property
    def completions(self) -> tuple[tuple[int, ...], ...]:
        """The number of ways to complete a mapping, by its number of student layers so far and its floor.

        `completions[m][f]` is the number for m student layers and the floor f. It is computed by dynamic programming
        from the last layer down: c[M, f] = 1, and c[m, f] is the sum over the choices n of layer m + 1, of c[m + 1, f]
        where n is none and of c[m + 1, n] where n > f.
        """
        # c[M]: a whole mapping is complete in one way, whatever its floor.
        rows = [(1,) * (self.teacher + 1)]
        for choices in reversed(self.choices):
            # c[m] is made of c[m + 1], the last row so far.
            next_row = rows[-1]
            row = []
            for floor in range(self.teacher + 1):
                allowed = [layer for layer in choices.values() if _is_allowed(layer, floor)]
                row.append(sum(next_row[raise_floor(floor, layer)] for layer in allowed))
            rows.append(tuple(row))
        # The rows were made from c[M] down to c[0].
        return tuple(reversed(rows))

    @property
    def size(self) -> int:
        """The number of members."""
        return self.completions[0][0]

    def __iter__(self) -> Iterator[Genome]:
        """Iterate over all members, in the order of their bits."""
        return self._members((), 0)

    def _members(self, codes: Genome, floor: int) -> Iterator[Genome]:
        """Yield the members that begin with these codes, whose highest teacher layer is `floor`."""
        if len(codes) == self.student:
            yield codes
            return
        for step in self.steps(len(codes), floor):
            yield from self._members((*codes, step.code), raise_floor(floor, step.layer))

    def steps(self, settled: int, floor: int) -> list[Step]:
        """Return the choices for the next student layer from which a legal mapping can be completed, by ascending code.

        Args:
            settled: Number of student layers whose choice is made.
            floor: The highest teacher layer that these use, 0 for none.
        """
        # The number of ways to go on after the next layer, by the floor that it leaves.
        counts = self.completions[settled + 1]
        steps = []
        for code, layer in sorted(self.choices[settled].items()):
            if not _is_allowed(layer, floor):
                continue
            members = counts[raise_floor(floor, layer)]
            if members > 0:
                steps.append(Step(code, layer, members))
        return steps

    def __contains__(self, genome: object) -> bool:
        """Whether a genome is legal: every code means something, and teacher layers increase strictly."""
        if not isinstance(genome, tuple) or len(genome) != self.student:
            return False
        floor = 0
        for code, choices in zip(genome, self.choices, strict=True):
            layer = choices.get(code)
            if layer is None or not _is_allowed(layer, floor):
                return False
            floor = raise_floor(floor, layer)
        return True

    def decode(self, genome: Genome) -> MappingTuple:
        """Return the mapping of a genome.

        Raises:
            ValueError: for an illegal genome.
        """
        if genome not in self:
            raise ValueError(f"the mapping {genome} is not one of the mappings that are searched")
        return tuple(choices[code] for code, choices in zip(genome, self.choices, strict=True))

    def encode(self, mapping: MappingTuple) -> Genome:
        """Return the genome of a mapping.

        Raises:
            RecipeError: for a mapping outside the space.
        """
        if len(mapping) != self.student:
            raise self._outside(mapping)
        codes = []
        for layer, choices in zip(mapping, self.choices, strict=True):
            code_by_layer = {teacher_layer: code for code, teacher_layer in choices.items()}
            if layer not in code_by_layer:
                raise self._outside(mapping)
            codes.append(code_by_layer[layer])
        genome = tuple(codes)
        if genome not in self:
            raise self._outside(mapping)
        return genome

    def _outside(self, mapping: MappingTuple) -> RecipeError:
        """Return the error for a mapping outside the space."""
        allowed = [f"{number}: {sorted(choices.values())}" for number, choices in enumerate(self.choices, start=1)]
        return RecipeError(
            f"Mapping {list(mapping)} is outside the search space; teacher layers increase strictly and are, by "
            f"student layer, {'; '.join(allowed)} (0 is none)."
        )


def _is_allowed(layer: int, floor: int) -> bool:
    """Whether a student layer may have this choice after layers whose highest teacher layer is `floor`."""
    return layer == NONE or layer > floor


def raise_floor(floor: int, layer: int) -> int:
    """Return the highest teacher layer after one more choice that is allowed.

    Only the choice `NONE`, which is 0, can be below the floor; it leaves the floor as it is.
    """
    return max(floor, layer)


def elm_space(student: int, teacher: int, teacher_layers: Collection[int] | None = None) -> MappingSpace:
    """Return ELM's search space for an M-layer student of an N-layer teacher.

    The layer that student layer m learns from is g(m), and g is strictly increasing (`MappingSpace` sees to it). With k
    the smallest integer with 2^k > 2 N / M and Z = floor((m - 1) N / (2 M)):

    - m < M: g(m) is in [Z + 1, Z + 2^k - 1], or m learns from no layer. Code 0 is none, and code c is layer Z + c.
    - m = M: g(M) is in [N - 2^k + 1, N]. Code c is layer N - 2^k + 1 + c.

    For shallow students these ranges reach beyond [1, N], where there are no teacher layers.

    Args:
        student: The student's depth M.
        teacher: The teacher's depth N.
        teacher_layers: The teacher layers that may be learned from; all by default. A teacher runs no higher than the
            highest of them.

    Raises:
        RecipeError: for a student without layers, one deeper than its teacher, a teacher layer that does not exist, or
            a space without members.

    Source:
        ELM (arXiv 2012.06153) section 4.2, equation 8 and table 1. The printed Z = floor((m - 1) N / 2^M) is a
        misprint: with it the four spaces of table 1 have 911, 4800, 12905 and 213880 members.
    """
    if teacher_layers is None:
        teacher_layers = range(1, teacher + 1)
    allowed = set(teacher_layers)
    _check_depths(student, teacher, allowed)

    # k of the formula, the smallest with 2^k > 2 N / M, is the number of bits of floor(2 N / M).
    bits = (2 * teacher // student).bit_length()
    codes = range(2**bits)
    # For each student layer the teacher layers that it may learn from, by their codes.
    choices: list[dict[int, int]] = []
    for m in range(1, student):
        offset = (m - 1) * teacher // (2 * student)  # Z of the formula.
        # Code 0 is none, so that layers begin with code 1.
        layer_by_code = {0: NONE}
        for code in codes[1:]:
            layer = offset + code
            if layer in allowed:
                layer_by_code[code] = layer
        choices.append(layer_by_code)
    # The last student layer always learns, so that its code 0 is a layer too, the lowest.
    lowest = teacher - 2**bits + 1
    choices.append({code: lowest + code for code in codes if lowest + code in allowed})

    space = MappingSpace(teacher=teacher, bits=bits, choices=tuple(choices))
    if space.size == 0:
        raise RecipeError(
            "No layer mapping is left: the student's last layer learns from one of teacher layers "
            f"{max(lowest, 1)} to {teacher}, but only {sorted(allowed)} are allowed; allow one of the former with "
            "--teacher-layers."
        )
    return space


def _check_depths(student: int, teacher: int, teacher_layers: Collection[int]) -> None:
    """Refuse depths between which there is nothing to map, and teacher layers that do not exist."""
    if student < 1:
        raise RecipeError(f"A student of {student} layers has no layer to map; give the student at least one layer.")
    if student > teacher:
        raise RecipeError(
            f"The student has {student} layers and its teacher {teacher}; a layer mapping search needs a student that "
            "is no deeper than its teacher."
        )
    for layer in sorted(teacher_layers):
        if not 1 <= layer <= teacher:
            raise RecipeError(f"Teacher layer {layer} does not exist: this teacher's layers are 1 to {teacher}.")
