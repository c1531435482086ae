"""Wrong arguments: one line that names the value, the rule and the way out; the calls are in refusals.yaml."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from limbeck import objectives
from limbeck.errors import KernelError
from limbeck.objectives import earth_mover, labels, layer_transport

FUNCTIONS = vars(objectives) | vars(earth_mover) | vars(layer_transport) | vars(labels)
TABLE = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8"))
REFUSED = [(name, line, change) for name, calls in TABLE.items() for line, change in calls["refused"].items()]


def value_of(given):
    """An argument as the table writes it."""
    if isinstance(given, list):
        return [value_of(item) for item in given]
    if not isinstance(given, str):
        return given
    if given == "identity":
        return torch.nn.Identity()
    if given.startswith("["):
        return torch.tensor(yaml.safe_load(given))
    tensor = re.fullmatch(r"(\w+) ([\dx]+|scalar)(?: of (\S+))?(?: on (\w+))?", given)
    if tensor is None:
        return given
    kind, shape, number, device = tensor.groups()
    return torch.full(
        [*map(int, re.findall(r"\d+", shape))], float(number or 1), dtype=getattr(torch, kind), device=device
    )


def call(name, change):
    given = TABLE[name]["given"] | change
    return FUNCTIONS[name](**{key: value_of(value) for key, value in given.items()})


@pytest.mark.parametrize("name", TABLE)
def test_the_calls_themselves_are_in_order(name):
    call(name, {})


@pytest.mark.parametrize(("name", "line", "change"), REFUSED, ids=[f"{name}: {line}" for name, line, _ in REFUSED])
def test_is_refused(name, line, change):
    with pytest.raises(KernelError) as caught:
        call(name, change)
    assert line in str(caught.value)
