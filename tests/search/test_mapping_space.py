"""ELM's space against its definition: counted by brute force, and the genes that the paper prints."""

import math

import numpy as np
import pytest

from limbeck.errors import RecipeError
from limbeck.search.mapping_space import MappingSpace, elm_space, from_binary, to_binary

TABLE_1 = {
    (4, 12): ([(1, 7), (2, 8), (4, 10), (5, 12)], 1048),
    (6, 12): ([(1, 7), (2, 8), (3, 9), (4, 10), (5, 11), (5, 12)], 9375),
    (4, 24): ([(1, 15), (4, 18), (7, 21), (9, 24)], 13892),
    (6, 24): ([(1, 15), (3, 17), (5, 19), (7, 21), (9, 23), (9, 24)], 380321),
}
TABLE_5 = {
    (4, 12): {"000-000-010-101": (0, 0, 5, 10), "000-000-011-101": (0, 0, 6, 10)},
    (6, 12): {"000-100-000-000-000-101": (0, 5, 0, 0, 0, 10), "000-000-000-011-000-101": (0, 0, 0, 6, 0, 10)},
}


def naive_layers(student, teacher, power=lambda m: 2 * m):
    """Equation 8 code by code: [student layer, code] to teacher layer, 0 for none, -1 where there is none."""
    k = next(k for k in range(1, 20) if 2**k > 2 * teacher / student)
    table = np.zeros((student, 2**k), dtype=int)
    for m in range(1, student + 1):
        offset = math.floor((m - 1) * teacher / power(student))
        for code in range(2**k):
            layer = teacher - 2**k + 1 + code if m == student else offset + code if code else 0
            none = code == 0 and m < student
            table[m - 1, code] = layer if none or 1 <= layer <= teacher else -1
    return table


def brute_force(table):
    """The legal ones of all genomes, `[genomes, student layers]` codes."""
    student, codes = table.shape
    result = []
    for start in range(0, codes**student, 2**20):
        numbers = np.arange(start, min(start + 2**20, codes**student))
        genomes = np.stack([numbers // codes**i % codes for i in reversed(range(student))], axis=1)
        layers = table[np.arange(student), genomes]
        highest, legal = np.zeros(len(numbers), dtype=int), (layers >= 0).all(axis=1)
        for column in layers.T:
            legal &= (column == 0) | (column > highest)
            highest = np.maximum(highest, column)
        result.append(genomes[legal])
    return np.concatenate(result)


@pytest.mark.parametrize("case", TABLE_1, ids=str)
def test_ranges_and_sizes_are_those_of_table_1(case):
    ranges, size = TABLE_1[case]
    space = elm_space(*case)
    assert [(min(set(c.values()) - {0}), max(c.values())) for c in space.choices] == ranges
    assert [0 in c.values() for c in space.choices] == [True] * (case[0] - 1) + [False]
    assert space.size == size


def test_the_printed_exponent_is_a_misprint():
    sizes = [len(brute_force(naive_layers(*case, power=lambda m: 2**m))) for case in TABLE_1 if case != (6, 24)]
    assert sizes == [911, 4800, 12905]


@pytest.mark.parametrize("case", [*list(TABLE_1)[:3], *((m, n) for n in range(1, 7) for m in range(1, n + 1))], ids=str)
def test_members_are_those_of_brute_force(case):
    space = elm_space(*case)
    expected = [tuple(genome) for genome in brute_force(naive_layers(*case)).tolist()]
    assert list(space) == expected
    assert space.size == len(expected)
    for genome in space:
        mapping = space.decode(genome)
        used = [layer for layer in mapping if layer]
        assert used == sorted(set(used)) and mapping[-1] and min(used) >= 1 and max(used) <= case[1]
        assert space.encode(mapping) == genome == from_binary(to_binary(genome, space.bits))


@pytest.mark.parametrize("case", TABLE_5, ids=str)
def test_genes_of_table_5_mean_the_mappings_of_table_2(case):
    space = elm_space(*case)
    for text, mapping in TABLE_5[case].items():
        assert space.decode(from_binary(text)) == mapping
        assert to_binary(space.encode(mapping), space.bits) == text


def test_teacher_layers_may_be_limited():
    space = elm_space(4, 12, teacher_layers=range(1, 9))
    whole = elm_space(4, 12)
    limited = [whole.decode(genome) for genome in whole if max(whole.decode(genome)) <= 8]
    assert [space.decode(genome) for genome in space] == limited
    assert space.size == len(limited) < whole.size
    assert space != whole
    assert space.description != whole.description


def test_illegal_genomes_and_mappings_are_refused():
    space = elm_space(4, 12)
    crossing = (7, 1, 0, 7)  # (7, 2, 0, 12)
    assert crossing not in space
    assert (0, 0, 0, 9) not in space
    assert (0, 0, 0) not in space
    assert "0007" not in space
    with pytest.raises(ValueError, match="not one of the mappings"):
        space.decode(crossing)
    for mapping in [(7, 2, 0, 12), (0, 0, 0, 0), (0, 0, 0, 4), (0, 0, 12), (0, 0, 5, 10, 12)]:
        with pytest.raises(RecipeError, match="outside the search space"):
            space.encode(mapping)


def test_a_space_may_be_too_large_to_list():
    space = elm_space(24, 48)
    assert space.size > 10**12
    assert next(iter(space)) in space


def test_codes_without_meaning_are_illegal():
    space = MappingSpace(teacher=3, bits=2, choices=({0: 0, 1: 1}, {3: 3}))
    assert list(space) == [(0, 3), (1, 3)]
    assert (2, 3) not in space
