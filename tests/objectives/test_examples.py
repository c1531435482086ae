"""The example in the docstring of every objective runs, and gives what it says."""

import doctest

import pytest
import torch

from limbeck import objectives
from limbeck.objectives import OBJECTIVES


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_examples_of_objectives(name):
    names = {name: getattr(objectives, name) for name in objectives.__all__}
    (example,) = doctest.DocTestFinder(recurse=False).find(
        OBJECTIVES[name].function, name, globs={"torch": torch, **names}
    )
    assert example.examples, "its docstring has an example"
    output = []
    failed, _ = doctest.DocTestRunner().run(example, out=output.append)
    assert not failed, "".join(output)
