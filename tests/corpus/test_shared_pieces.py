"""Texts of shared pieces: a cut tokenizer and the whole one cut exactly these alike."""

import pickle
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limbeck.corpus.tokens.shared_pieces import SharedPieces
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from limbeck.models.piece_choice import PieceAim, PieceCounts, choose_pieces
from limbeck.models.vocabulary_cut import Pieces
from tests.support.piece_tokenizers import ALL_WORDS, KINDS, random_texts, trained_tokenizer

TEXTS = st.lists(st.sampled_from(ALL_WORDS), max_size=4).map(" ".join)
ANY_TEXT = st.one_of(TEXTS, st.text(max_size=20), st.text(alphabet="".join(ALL_WORDS) + " .", max_size=20))
PER_KIND = pytest.mark.parametrize("kind", KINDS)


@cache
def cut(kind):
    """A tokenizer cut to the pieces of most of a text's tokens."""
    tokenizer = trained_tokenizer(kind)
    counted = PieceCounts(tokenizer)
    counted.add(random_texts(100, seed=3))
    return Pieces(tokenizer).cut(choose_pieces(Pieces(tokenizer), tokenizer, counted.counts, PieceAim(coverage=0.9)))


@cache
def shared(kind):
    return SharedPieces(trained_tokenizer(kind), cut(kind).tokenizer)


def are_cut_alike(kind, text, *, by_sentence=False):
    """Whether both tokenizers give the same pieces, by the ids of the whole one."""
    encoders = [TokenEncoder(trained_tokenizer(kind)), TokenEncoder(cut(kind).tokenizer)]
    if by_sentence:
        whole, smaller = (encoder.encode_sentences([text])[0] for encoder in encoders)
        assert np.array_equal(whole < 0, smaller < 0) or len(whole) != len(smaller)
        whole, smaller = (np.where(ids < 0, ~ids, ids) for ids in (whole, smaller))
    else:
        whole, smaller = (encoder.encode([text])[0] for encoder in encoders)
    return np.array_equal(np.array(cut(kind).old_ids)[smaller], whole)


@PER_KIND
@given(text=ANY_TEXT)
def test_covered_texts_are_those_that_are_cut_alike(kind, text):
    assert shared(kind).cover([text]) == [are_cut_alike(kind, text)]


@PER_KIND
@given(text=st.lists(TEXTS, max_size=3).map(". ".join))
def test_sentences_are_covered_where_each_is_cut_alike(kind, text):
    assert shared(kind).cover([text], by_sentence=True) == [are_cut_alike(kind, text, by_sentence=True)]


@PER_KIND
def test_some_texts_are_covered_and_some_are_not(kind):
    texts = random_texts(200, seed=5, words=3)
    covered = shared(kind).cover(texts)
    assert covered == [are_cut_alike(kind, text) for text in texts]
    assert 10 < sum(covered) < 190
    # Worker processes get a copy.
    assert pickle.loads(pickle.dumps(shared(kind))).cover(texts) == covered


def test_no_texts_and_an_empty_one():
    assert shared("wordpiece").cover([]) == []
    assert shared("wordpiece").cover([""]) == [True]
    assert shared("wordpiece").cover([""], by_sentence=True) == [True]
