"""Cut vocabularies: texts of pieces that stay are cut as before, and no other text becomes unknown."""

import json
import math
import random
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, processors
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from limbeck.errors import ModelError
from limbeck.models.piece_choice import PieceAim, PieceCounts, choose_pieces
from limbeck.models.vocabulary_cut import Pieces
from tests.support.piece_tokenizers import ALL_WORDS, KINDS, WORDS, random_texts, trained_tokenizer

TEXTS = st.lists(st.sampled_from(ALL_WORDS), max_size=6).map(" ".join)
ANY_TEXT = st.one_of(st.text(max_size=30), TEXTS, st.text(alphabet="".join(ALL_WORDS) + " ", max_size=30))
PER_KIND = pytest.mark.parametrize("kind", KINDS)


def counts_of(tokenizer, texts):
    counted = PieceCounts(tokenizer)
    counted.add(texts)
    return counted.counts


@cache
def cut(kind):
    """A tokenizer cut to half of the pieces that a text uses, mostly of two scripts, and the ids that stay."""
    tokenizer = trained_tokenizer(kind)
    pieces = Pieces(tokenizer)
    counts = counts_of(tokenizer, random_texts(200, seed=1) + [WORDS["latin"], WORDS["greek"]] * 50)
    used = set(np.flatnonzero(counts).tolist()) - pieces.staying
    number = len(pieces.staying) + len(used) // 2
    return pieces.cut(choose_pieces(pieces, tokenizer, counts, PieceAim(pieces=number)))


def old_ids_of(cut_tokenizer, text):
    return [cut_tokenizer.old_ids[new_id] for new_id in cut_tokenizer.tokenizer(text)["input_ids"]]


@PER_KIND
def test_pieces_keep_their_order_and_number(kind):
    tokenizer, old_ids = trained_tokenizer(kind), cut(kind).old_ids
    assert len(Pieces(tokenizer).staying) < len(old_ids) < len(tokenizer)
    assert list(old_ids) == sorted(set(old_ids))
    vocabulary = tokenizer.get_vocab()
    assert {name: old_ids[new_id] for name, new_id in cut(kind).tokenizer.get_vocab().items()}.items() <= (
        vocabulary.items()
    )
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert old_ids[getattr(cut(kind).tokenizer, f"{role}_token_id")] == getattr(tokenizer, f"{role}_token_id")


@cache
def words_that_stay(kind):
    """Words, and words put together, all of whose pieces stay behind a space."""
    words = [*ALL_WORDS, *(word for text in random_texts(300, seed=9) for word in text.split())]
    staying = set(cut(kind).old_ids)
    return [word for word in words if set(trained_tokenizer(kind)(f"a {word}")["input_ids"]) <= staying]


@PER_KIND
@given(data=st.data())
def test_a_text_of_pieces_that_stay_is_cut_as_before(kind, data):
    assert len(words_that_stay(kind)) > 20
    text = "a " + " ".join(data.draw(st.lists(st.sampled_from(words_that_stay(kind)), max_size=8)))
    before = trained_tokenizer(kind)(text)["input_ids"]
    assume(set(before) <= set(cut(kind).old_ids))
    assert old_ids_of(cut(kind), text) == before


@PER_KIND
@given(text=ANY_TEXT)
def test_no_text_becomes_unknown_or_decodes_to_another(kind, text):
    tokenizer = trained_tokenizer(kind)
    before = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    after = cut(kind).tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
    assert "".join(after.tokens).count("<unk>") <= "".join(before.tokens).count("<unk>")
    assert after.tokens.count("[UNK]") <= before.tokens.count("[UNK]")
    if tokenizer.backend_tokenizer.decode(before.ids) == text:
        assert cut(kind).tokenizer.backend_tokenizer.decode(after.ids) == text
    assert len(after.ids) >= len(before.ids)


@PER_KIND
def test_a_saved_tokenizer_is_read_again(kind, tmp_path):
    tokenizer = cut(kind).tokenizer
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again.get_vocab() == tokenizer.get_vocab()
    for text in random_texts(200, seed=3):
        assert again(text, text)["input_ids"] == tokenizer(text, text)["input_ids"]
    # The tokenizer that was cut is left as it is.
    assert len(trained_tokenizer(kind)) > len(tokenizer)


def cut_word_naively(model, names, word):
    """Cut a word, or a text without spaces, with some of the pieces of a vocabulary, as the three papers say."""
    if model["type"] == "WordPiece":
        pieces, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in names:
                    break
            else:
                return ["[UNK]"]
            pieces.append(piece)
            start = end
        return pieces
    if model["type"] == "BPE":
        ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        pieces = list(word)
        while True:
            pairs = [
                (ranks[pair], place)
                for place, pair in enumerate(pairwise(pieces))
                if pair in ranks and set(pair) <= names and "".join(pair) in names
            ]
            if not pairs:
                return pieces
            place = min(pairs)[1]
            pieces[place : place + 2] = ["".join(pieces[place : place + 2])]
    scores = {piece: score for piece, score in model["vocab"] if piece in names}
    best = [(0.0, [])] + [(-math.inf, [])] * len(word)
    for end in range(1, len(word) + 1):
        for start in range(end):
            score = best[start][0] + scores.get(word[start:end], -math.inf)
            if score > best[end][0]:
                best[end] = (score, [*best[start][1], word[start:end]])
    return best[-1][1]


@PER_KIND
def test_random_texts_are_cut_as_by_brute_force(kind):
    """10,000 texts for each kind, of words whose characters all have pieces."""
    tokenizer = cut(kind).tokenizer
    backend = tokenizer.backend_tokenizer
    model = json.loads(trained_tokenizer(kind).backend_tokenizer.to_str())["model"]
    names = set(tokenizer.get_vocab())
    generator = random.Random(5)
    for _ in range(10_000):
        word = "".join(generator.choices(ALL_WORDS, k=2))
        word = word[: generator.randint(1, 8)]
        if kind == "byte_level_bpe":
            spelled = backend.pre_tokenizer.pre_tokenize_str(word)
            expected = [piece for part, _ in spelled for piece in cut_word_naively(model, names, part)]
        elif kind == "wordpiece":
            spelled = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(word))
            expected = [piece for part, _ in spelled for piece in cut_word_naively(model, names, part)]
        else:
            word = "".join(character for character in word if character in names)
            expected = cut_word_naively(model, names, f"▁{word}") if word else []
        encoding = backend.encode(word, add_special_tokens=False)
        assert encoding.tokens == expected
        assert encoding.ids == [tokenizer.get_vocab()[piece] for piece in expected]


def test_every_piece_of_a_bpe_that_stays_can_be_made():
    for kind in ("byte_level_bpe", "byte_fallback_bpe"):
        backend = cut(kind).tokenizer.backend_tokenizer
        merges = json.loads(backend.to_str())["model"]["merges"]
        merged_names = {left + right for left, right in merges}
        special = {token.content for token in backend.get_added_tokens_decoder().values()}
        for name in backend.get_vocab():
            is_byte = name.startswith("<0x")
            assert name in merged_names or len(name) == 1 or is_byte or name in special


def test_words_that_always_stay_are_whole():
    for kind in KINDS:
        tokenizer = trained_tokenizer(kind)
        pieces = Pieces(tokenizer)
        counts = counts_of(tokenizer, [WORDS["latin"]])
        aim = PieceAim(coverage=0.5, words=["свободными", "인간은"])
        staying = choose_pieces(pieces, tokenizer, counts, aim)
        for word in aim.words:
            for text in (word, f"a {word}"):
                before = tokenizer.tokenize(text)
                if text == word:
                    assert pieces.cut(staying).tokenizer.tokenize(text) == before


@PER_KIND
@pytest.mark.parametrize("coverage", [0.3, 0.9, 1.0])
def test_a_coverage_is_reached_by_the_fewest_uses(kind, coverage):
    tokenizer = trained_tokenizer(kind)
    counts = counts_of(tokenizer, random_texts(100, seed=2))
    pieces = Pieces(tokenizer)
    staying = choose_pieces(pieces, tokenizer, counts, PieceAim(coverage=coverage))
    assert counts[list(staying)].sum() >= coverage * counts.sum()
    free = sorted(staying - pieces.staying, key=lambda piece_id: counts[piece_id])
    if free and kind in ("wordpiece", "unigram"):
        # Without the rarest of them the coverage would not be reached.
        assert counts[list(staying - {free[0]})].sum() < coverage * counts.sum()


@PER_KIND
def test_wrong_numbers_are_refused_with_right_ones(kind):
    tokenizer = trained_tokenizer(kind)
    pieces = Pieces(tokenizer)
    counts = counts_of(tokenizer, [WORDS["latin"]])
    with pytest.raises(ModelError, match=r"10 pieces are too few: .* give (\d+) or more") as error:
        choose_pieces(pieces, tokenizer, counts, PieceAim(pieces=10))
    least = int(str(error.value).split("give ")[1].split()[0])
    assert len(choose_pieces(pieces, tokenizer, counts, PieceAim(pieces=least))) == least == len(pieces.staying)
    with pytest.raises(ModelError, match=r"99,999 pieces are too many: .* give (\d+) or fewer, or more text"):
        choose_pieces(pieces, tokenizer, counts, PieceAim(pieces=99_999))


def test_unused_slots_go_and_special_tokens_stay():
    words = ["[PAD]", "[UNK]", "[unused0]", "[unused1]", "a", "##a", "ab", "[E]", "ac"]
    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
    tokenizer.add_special_tokens({"extra_special_tokens": ["[E]", "[new]"]})
    pieces = Pieces(tokenizer)
    # "b" and "c" have no pieces of their own, so that "ab" and "ac" would be unknown.
    assert {pieces.names[piece_id] for piece_id in pieces.staying} == {
        "[PAD]", "[UNK]", "a", "##a", "ab", "ac", "[E]", "[new]"
    }  # fmt: skip
    after = pieces.cut(pieces.staying)
    assert after.old_ids == (0, 1, 4, 5, 6, 7, 8, 9)
    assert after.tokenizer.convert_tokens_to_ids("[new]") == 7


def test_added_tokens_stay_whatever_the_text_uses():
    words = ["[PAD]", "[UNK]", "a", "##a"]
    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")
    tokenizer.add_tokens(["<ent>", "[unused12]", "limbeckian"])
    pieces = Pieces(tokenizer)
    after = pieces.cut(pieces.staying).tokenizer
    assert after.get_vocab() == {name: number for number, name in enumerate([*words, "<ent>", "limbeckian"])}
    assert after.tokenize("a<ent>limbeckian") == ["a", "<ent>", "limbeckian"]


@pytest.mark.parametrize(
    "processor",
    [
        processors.TemplateProcessing(single="[S] $A [E]", special_tokens=[("[S]", 3), ("[E]", 4)]),
        processors.BertProcessing(("[E]", 4), ("[S]", 3)),
        processors.RobertaProcessing(("[E]", 4), ("[S]", 3)),
        processors.Sequence([processors.ByteLevel(), processors.BertProcessing(("[E]", 4), ("[S]", 3))]),
    ],
    ids=["template", "bert", "roberta", "sequence"],
)
def test_tokens_around_a_text_and_padding_get_their_new_ids(processor):
    words = ["[UNK]", "[unused0]", "[unused1]", "[S]", "[E]", "[P]", "a"]
    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    backend.post_processor = processor
    backend.enable_padding(pad_id=5, pad_token="[P]", length=4)
    pieces = Pieces(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[P]"))
    after = pieces.cut(pieces.staying)
    assert after.old_ids == (0, 3, 4, 5, 6)
    assert after.tokenizer.backend_tokenizer.encode("a").ids == [1, 4, 2, 3]


def test_scores_of_unknown_characters_stay():
    # The score of an unknown character lies 10 below the lowest one, which here belongs to a piece that no text uses.
    vocabulary = [("<unk>", 0.0), ("a", -3.0), ("b", -4.0), ("ab", -5.0), ("bbbb", -60.0)]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.Unigram(vocabulary, unk_id=0)), unk_token="<unk>"
    )
    assert {Pieces(tokenizer).names[number] for number in Pieces(tokenizer).staying} == {"<unk>", "a", "b", "bbbb"}


def test_tokenizers_that_cannot_be_cut_are_refused():
    with pytest.raises(ModelError, match="ByT5Tokenizer cannot be cut, only that of a fast tokenizer"):
        Pieces(ByT5Tokenizer())
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(ModelError, match="vocabulary of a WordLevel tokenizer cannot be cut"):
        Pieces(words)
    random_bpe = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [], dropout=0.1)))
    with pytest.raises(ModelError, match="dropout cannot be cut"):
        Pieces(random_bpe)


def test_counts_are_those_of_the_library():
    tokenizer = trained_tokenizer("unigram")
    texts = random_texts(700)
    expected = np.zeros(len(tokenizer), dtype=int)
    for text in texts:
        for token_id in tokenizer(text, add_special_tokens=False)["input_ids"]:
            expected[token_id] += 1
    assert (counts_of(tokenizer, texts) == expected).all()
