"""Rows of a vocabulary of the student's own: means of the source's rows of each token's pieces."""

import numpy as np
import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models import start
from limbeck.models.families import shape_of
from limbeck.models.start_step import StartSettings
from limbeck.models.students import build_student, student_config
from limbeck.models.token_pieces import mean_rows, pieces_of_tokens
from limbeck.models.wordpieces import train_wordpieces
from tests.support.corpora import byte_tokenizer, documents
from tests.support.models import blueprint_like, tiny_model, tiny_tokenizer

WORDS = 150


@pytest.fixture(scope="module")
def words():
    """WordPieces of a text."""
    return train_wordpieces(documents, WORDS)


def naive_pieces(words, source, *, has_wordpieces):
    """The pieces of each token, one after the other."""
    special = {
        words.pad_token: source.pad_token_id,
        words.unk_token: source.unk_token_id,
        words.cls_token: source.cls_token_id,
        words.sep_token: source.sep_token_id,
        words.mask_token: source.mask_token_id,
    }
    pieces = []
    for token_id in range(len(words)):
        token = words.convert_ids_to_tokens(token_id)
        if token in special:
            pieces.append([] if special[token] is None else [special[token]])
        elif has_wordpieces and token in source.get_vocab():
            pieces.append([source.convert_tokens_to_ids(token)])
        elif token.startswith("##"):
            pieces.append(source.encode(token[2:], add_special_tokens=False))
        else:
            pieces.append(source.encode(" " + token, add_special_tokens=False))
    return pieces


def naive_rows(table, pieces):
    """The mean row of each token in float64."""
    rows = []
    for ids in pieces:
        chosen = table[ids] if ids else table
        rows.append(chosen.astype(np.float64).mean(0))
    return np.array(rows)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_pieces_of_wordpieces_are_those_of_a_naive_cut(words, family):
    source = tiny_tokenizer(family)
    pieces = pieces_of_tokens(words, source)
    assert pieces == naive_pieces(words, source, has_wordpieces=True)
    token_of = source.convert_ids_to_tokens
    for token, expected in (("[MASK]", [source.mask_token]), ("[SEP]", [source.sep_token]), ("##e", ["##e"])):
        assert token_of(pieces[words.convert_tokens_to_ids(token)]) == expected
    assert max(map(len, pieces)) > 1


def test_a_token_that_begins_a_word_stands_behind_a_space(words):
    source = byte_tokenizer("<s> $A </s>", bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    pieces = pieces_of_tokens(words, source)
    naive = naive_pieces(words, source, has_wordpieces=False)
    is_special = set(words.all_special_ids)
    assert all(pieces[index] == naive[index] for index in range(len(words)) if index not in is_special)
    tokens = {token: source.convert_ids_to_tokens(pieces[token_id]) for token, token_id in words.get_vocab().items()}
    assert tokens["the"] == ["Ġ", "t", "h", "e"]
    assert tokens["##e"] == ["e"]
    # The beginning of a text and the separator have other names here, and there is no mask.
    assert (tokens["[CLS]"], tokens["[SEP]"], tokens["[MASK]"]) == (["<s>"], ["</s>"], [])


def test_rows_are_means():
    table = torch.randn(9, 4)
    pieces = [[3], [1, 2, 2], [], [8, 0]]
    np.testing.assert_allclose(mean_rows(table, pieces).numpy(), naive_rows(table.numpy(), pieces), atol=1e-6)


def start_with(words, source_tokenizer, source, *, embeddings="averaged", layers="first", **changes):
    """A student of the WordPieces that starts from a source, and the record of its start."""
    blueprint = blueprint_like(shape_of(source.config), 2).model_copy(update=changes)
    config = student_config(blueprint, source.config, vocabulary=len(words))
    student = build_student(config, seed=9)
    settings = StartSettings(layers, embeddings, seed=3)
    pieces = pieces_of_tokens(words, source_tokenizer)
    return student, start.start_student(student, source, settings, pieces=pieces)


@pytest.mark.parametrize("hidden", [48, 24])
def test_a_student_starts_from_the_means_that_numpy_projects(words, hidden):
    source = tiny_model("bert")
    student, record = start_with(words, tiny_tokenizer("bert"), source, hidden=hidden, heads=4, ffn=96)
    table = source.get_input_embeddings().weight.detach().numpy().astype(np.float64)
    rows = naive_rows(table, naive_pieces(words, tiny_tokenizer("bert"), has_wordpieces=True))
    if hidden == 24:
        _, _, directions = np.linalg.svd(table - table.mean(0))
        basis = directions[:24].T
        basis = basis * np.sign(basis[np.abs(basis).argmax(0), np.arange(24)])
        rows = rows @ basis
        assert 0 < record.explained < 1
    np.testing.assert_allclose(student.get_input_embeddings().weight.detach().numpy(), rows, atol=1e-5)
    assert record.embeddings == "averaged"
    assert "and averaged embeddings" in record.summary
    assert "embeddings.word_embeddings.weight" in record.projected
    origin = record.copied if hidden == 48 else record.projected
    assert "embeddings.position_embeddings.weight" in origin


def test_a_wider_student_cannot_start_so(words):
    with pytest.raises(
        ModelError, match="Embeddings cannot be averaged: .* set embeddings: random, or embeddings: auto"
    ):
        start_with(words, tiny_tokenizer("bert"), tiny_model("bert"), layers="random", hidden=64, heads=4)


def test_pieces_are_needed(words):
    source = tiny_model("bert")
    config = student_config(blueprint_like(shape_of(source.config), 2), source.config, vocabulary=len(words))
    with pytest.raises(ModelError, match="needs the tokenizers .* set embeddings: random"):
        start.start_student(build_student(config, seed=1), source, StartSettings("first", "averaged"))
