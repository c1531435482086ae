"""The search against random search where the best mapping is known; all cases are in `benchmarks/search_synthetic.py`.

These are cases where the search has to be better. There are others, in the benchmark's results: after five of the
paper's generations it is hardly better than chance, and in the smallest space random search also finds the optimum.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from limbeck.search import GeneticSettings

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "search_synthetic.py"
NEW = GeneticSettings(population=20, parents="best")


@pytest.fixture(scope="module")
def benchmark():
    result = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = importlib.util.module_from_spec(result)
    result.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def members(benchmark):
    return benchmark.Members(6, 12)


@pytest.mark.parametrize("kind", ["distance", "matches", "rugged"])
def test_the_planted_mapping_is_the_only_best(benchmark, members, kind):
    fitness = benchmark.landscape(kind, members, np.random.default_rng(1))
    assert fitness.max() == 0.0
    assert (fitness == 0.0).sum() == 1


def test_the_search_beats_random_search_in_four_of_five_seeds(benchmark, members):
    (row,) = benchmark.compare(members, "rugged", 0.25, NEW, generations=(20,), seeds=5)
    assert row["better"] >= 4
    assert row["better"] + row["equal"] + row["worse"] == 5
    assert row["evaluations"] == 400
