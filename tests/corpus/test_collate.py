from __future__ import annotations

import pytest
import torch

from limbeck.corpus import PadCollator, padding_share
from limbeck.errors import CorpusError

ROWS = [{"input_ids": [5, 6, 7], "length": 3}, {"input_ids": [8], "length": 1}]


def test_right() -> None:
    batch = PadCollator(9)(ROWS)
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_left_and_rounded_up() -> None:
    batch = PadCollator(0, "left", multiple_of=4)(ROWS)
    assert batch["input_ids"].tolist() == [[0, 5, 6, 7], [0, 0, 0, 8]]
    assert batch["attention_mask"].tolist() == [[0, 1, 1, 1], [0, 0, 0, 1]]


def test_full_blocks_are_not_padded() -> None:
    batch = PadCollator(0, multiple_of=8)([{"input_ids": list(range(8))}] * 3)
    assert batch["input_ids"].shape == (3, 8)
    assert bool(batch["attention_mask"].all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, "middle"), "Unknown padding side"), ((None,), "no padding token"), ((0, "left", 0), "multiple_of")],
)
def test_refusals(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        PadCollator(*arguments)  # type: ignore[arg-type]


def test_padding_share() -> None:
    assert padding_share([4, 4, 2, 2], 2) == 0
    assert padding_share([4, 2, 4, 2], 2) == 0.25
    assert padding_share([], 2) == 0
