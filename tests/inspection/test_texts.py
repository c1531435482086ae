"""Texts come from a file, spread over it, or along with limbeck; unreadable files say so."""

import pytest
import torch

from limbeck.corpus.files.small_files import read_texts as read_first_texts
from limbeck.errors import CorpusError
from limbeck.inspection import SENTENCES, read_texts
from limbeck.inspection.texts import tokenise
from limbeck.models.inference import batches
from tests.support.inspection import tiny_subject


def test_a_text_a_line_spread_over_the_file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\ufeffone\n\n  two \nthree\n\nfour\n", encoding="utf-8")
    assert read_texts(path, 10) == ("one", "two", "three", "four")
    assert read_texts(path, 2) == ("one", "three")
    assert read_first_texts(path, 2) == ["one", "two"]


def test_sentences_come_along():
    assert read_texts(None, 3)[0] == SENTENCES[0]
    assert len(read_texts(None, 1000)) == len(set(SENTENCES)) >= 30


@pytest.mark.parametrize(
    ("content", "words"), [(None, "Cannot read"), (b"\n \n", "holds no text"), (b"caf\xe9", "not in UTF-8")]
)
def test_mistakes_are_named(tmp_path, content, words):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=words):
        read_texts(path, 3)


def test_what_a_tokenizers_file_has_fixed_does_not_count():
    tokenizer = tiny_subject().tokenizer
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    rows = tokenise(tokenizer, ["the text of the model", "it", "the model is the text"], [6, None])
    assert [len(row) for row in rows.ids] == [6, 3, 6]
    assert rows.cut == 2
    assert all(row[-1] == tokenizer.sep_token_id for row in rows.ids)
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 4


def test_batches_hold_every_row_once_and_say_where_they_are():
    subject, told = tiny_subject(), []
    rows = [[5] * length for length in (3, 9, 1, 4, 4)]
    found = list(
        batches(rows, subject.tokenizer, device=subject.device, batch_size=2, report=lambda *now: told.append(now))
    )
    assert sorted(row for batch in found for row in batch.rows) == [0, 1, 2, 3, 4]
    for batch in found:
        assert batch.valid.sum(1).tolist() == [len(rows[row]) for row in batch.rows]
    assert [count for *_, count in told] == [(done, "tokens", 21) for done in (0, 13, 20, 21)]
    assert [round(share, 3) for share, *_ in told] == [round(done / 21, 3) for done in (0, 13, 20, 21)]


def test_long_rows_come_in_smaller_batches_on_a_cpu(monkeypatch):
    monkeypatch.setattr("limbeck.models.inference._TOKENS_ON_CPU", 20)
    subject = tiny_subject()
    lengths = (25, 10, 9, 8, 7, 6, 5, 4, 3, 2)
    rows = [[5] * length for length in lengths]
    found = list(batches(rows, subject.tokenizer, device=torch.device("cpu"), batch_size=4))
    # A row that is longer than the limit has a batch of its own, and short rows are limited by the batch size.
    assert [batch.rows for batch in found] == [[0], [1, 2], [3, 4], [5, 6, 7], [8, 9]]
    assert all(batch.valid.numel() <= 20 for batch in found[1:])
