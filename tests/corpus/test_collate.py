import numpy as np
import pytest
import torch

from limbeck.corpus import PadCollator, padding_share
from limbeck.errors import CorpusError

ROWS = [{"input_ids": [5, 6, 7], "length": 3}, {"input_ids": [8], "length": 1}]


def test_right():
    batch = PadCollator(9)(ROWS)
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_left_and_rounded_up():
    batch = PadCollator(0, "left", multiple_of=4)(ROWS)
    assert batch["input_ids"].tolist() == [[0, 5, 6, 7], [0, 0, 0, 8]]
    assert batch["attention_mask"].tolist() == [[0, 1, 1, 1], [0, 0, 0, 1]]


def test_full_blocks_are_not_padded():
    batch = PadCollator(0, multiple_of=8)([{"input_ids": list(range(8))}] * 3)
    assert batch["input_ids"].shape == (3, 8)
    assert bool(batch["attention_mask"].all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, "middle"), "Unknown padding side"),
        ((None,), "no padding token"),
        ((0, "left", 0), "multiple_of"),
        ((0, "left", 1, "classes"), "Unknown kind of labels 'classes'. Did you mean 'class'"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(CorpusError, match=message):
        PadCollator(*arguments)


def test_token_types_are_padded_with_zero():
    rows = [{"input_ids": [5, 6, 7], "token_type_ids": [0, 1, 1]}, {"input_ids": [8], "token_type_ids": [1]}]
    assert PadCollator(9)(rows)["token_type_ids"].tolist() == [[0, 1, 1], [1, 0, 0]]
    left = PadCollator(9, "left", multiple_of=4)(rows)["token_type_ids"]
    assert left.tolist() == [[0, 0, 1, 1], [0, 0, 0, 1]]
    assert left.dtype == torch.int64


def test_labels_of_tokens():
    rows = [{"input_ids": [5, 6, 7], "labels": np.array([-100, 4, -100])}, {"input_ids": [8], "labels": [3]}]
    assert PadCollator(9, labels="token")(rows)["labels"].tolist() == [[-100, 4, -100], [3, -100, -100]]
    left = PadCollator(9, "left", multiple_of=4, labels="token")(rows)["labels"]
    assert left.tolist() == [[-100, -100, 4, -100], [-100, -100, -100, 3]]
    assert left.dtype == torch.int64


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("kind", "given", "dtype"), [("class", [2, 0], torch.int64), ("value", [2.5, -0.5], torch.float32)]
)
def test_labels_of_rows(side, kind, given, dtype):
    batch = PadCollator(0, side, labels=kind)([{**row, "labels": y} for row, y in zip(ROWS, given, strict=True)])
    assert batch["labels"].tolist() == given
    assert batch["labels"].dtype == dtype


def test_whole_numbers_as_values_are_float():
    batch = PadCollator(0, labels="value")([{**row, "labels": 3} for row in ROWS])
    assert batch["labels"].dtype == torch.float32


@pytest.mark.parametrize("side", ["right", "left"])
def test_spans_still_name_the_same_tokens(side):
    rows = [
        {"input_ids": [5, 6, 7], "labels": [1, 2]},
        {"input_ids": [8], "labels": [0, 0]},
        {"input_ids": [3, 4], "labels": [-100, -100]},
    ]
    batch = PadCollator(0, side, multiple_of=4, labels="span")(rows)
    assert batch["labels"].dtype == torch.int64
    tokens = [[batch["input_ids"][row, place].item() for place in batch["labels"][row]] for row in (0, 1)]
    assert tokens == [[6, 7], [8, 8]]
    assert batch["labels"][2].tolist() == [-100, -100]


def test_labels_are_read_only_where_announced():
    rows = [{**row, "labels": "no number"} for row in ROWS]
    assert PadCollator(0)(rows).keys() == {"input_ids", "attention_mask"}
    with pytest.raises(CorpusError, match="no labels"):
        PadCollator(0, labels="class")([{**ROWS[0], "labels": 1}, ROWS[1]])
    # The sum fits, the rows do not.
    with pytest.raises(CorpusError, match="not as many labels as tokens"):
        PadCollator(0, labels="token")([{**ROWS[0], "labels": [1]}, {**ROWS[1], "labels": [1, 2, 3]}])


def test_padding_share():
    assert padding_share([4, 4, 2, 2], 2) == 0
    assert padding_share([4, 2, 4, 2], 2) == 0.25
    assert padding_share([], 2) == 0
