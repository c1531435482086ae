"""Batches of rows: what pads them, and labels of each kind."""

import numpy as np
import pytest
import torch

from limbeck.corpus import PadCollator, padding_share

ROWS = [{"input_ids": [5, 6, 7], "length": 3}, {"input_ids": [8], "length": 1}]
RIGHT = {"side": "right", "pad_token_id": 9}
LEFT = {"side": "left", "pad_token_id": 9, "multiple_of": 4}


def collated(rows, **options):
    """A batch as lists, all of its tensors int64."""
    batch = PadCollator(**options)(rows)
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    return {name: tensor.tolist() for name, tensor in batch.items()}


def test_rows_are_padded_to_the_longest_with_the_mask_of_it():
    assert collated(ROWS, **RIGHT) == {"input_ids": [[5, 6, 7], [8, 9, 9]], "attention_mask": [[1, 1, 1], [1, 0, 0]]}
    assert collated(ROWS, **LEFT) == {
        "input_ids": [[9, 5, 6, 7], [9, 9, 9, 8]],
        "attention_mask": [[0, 1, 1, 1], [0, 0, 0, 1]],
    }
    full = [{"input_ids": list(range(8))}] * 3
    assert collated(full, pad_token_id=0, multiple_of=8)["attention_mask"] == [[1] * 8] * 3


def test_token_types_are_padded_with_zero():
    rows = [{"input_ids": [5, 6, 7], "token_type_ids": [0, 1, 1]}, {"input_ids": [8], "token_type_ids": [1]}]
    assert collated(rows, **RIGHT)["token_type_ids"] == [[0, 1, 1], [1, 0, 0]]
    assert collated(rows, **LEFT)["token_type_ids"] == [[0, 0, 1, 1], [0, 0, 0, 1]]


def test_labels_of_tokens():
    rows = [{"input_ids": [5, 6, 7], "labels": np.array([-100, 4, -100])}, {"input_ids": [8], "labels": [3]}]
    assert collated(rows, **RIGHT, labels="token")["labels"] == [[-100, 4, -100], [3, -100, -100]]
    assert collated(rows, **LEFT, labels="token")["labels"] == [[-100, -100, 4, -100], [-100, -100, -100, 3]]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("kind", "given", "dtype"),
    [("class", [2, 0], torch.int64), ("value", [2.5, -0.5], torch.float32), ("value", [3, 3], torch.float32)],
)
def test_labels_of_rows(side, kind, given, dtype):
    batch = PadCollator(0, side, labels=kind)([{**row, "labels": y} for row, y in zip(ROWS, given, strict=True)])
    assert (batch["labels"].tolist(), batch["labels"].dtype) == (given, dtype)


@pytest.mark.parametrize("padding", [RIGHT, LEFT], ids=["right", "left"])
def test_spans_still_name_the_same_tokens(padding):
    spans = {(5, 6, 7): [1, 2], (8,): [0, 0], (3, 4): [-100, -100]}
    batch = collated([{"input_ids": ids, "labels": span} for ids, span in spans.items()], **padding, labels="span")
    tokens = [
        [ids[place] for place in span] for ids, span in zip(batch["input_ids"], batch["labels"][:2], strict=False)
    ]
    assert (tokens, batch["labels"][2]) == ([[6, 7], [8, 8]], [-100, -100])


def test_labels_are_read_only_where_announced():
    assert "labels" not in collated([{**row, "labels": "no number"} for row in ROWS], **RIGHT)


def test_padding_share():
    assert [padding_share(lengths, 2) for lengths in ([4, 4, 2, 2], [4, 2, 4, 2], [])] == [0, 0.25, 0]
