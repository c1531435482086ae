import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from limbeck.corpus.tokens.packing import BlockPacker, PackingCounts, segments_of
from limbeck.corpus.tokens.token_encoder import TokenEncoder
from tests.support.corpora import documents
from tests.support.models import tiny_tokenizer

UNITS = st.lists(st.lists(st.integers(10, 99), max_size=40), max_size=12)
SPECIAL = st.lists(st.integers(0, 4), max_size=2)


@given(units=UNITS, prefix=SPECIAL, suffix=SPECIAL, length=st.integers(5, 20))
def test_without_join_no_token_is_lost_and_no_unit_joined(units, prefix, suffix, length):
    packer = BlockPacker(length, prefix, suffix)
    room = length - len(prefix) - len(suffix)
    for unit in units:
        blocks = [block.tolist() for block in packer.pack([unit])]
        contents = [block[len(prefix) : len(block) - len(suffix)] for block in blocks]
        assert [token for content in contents for token in content] == unit
        assert all([*prefix, *content, *suffix] == block for content, block in zip(contents, blocks, strict=True))
        assert all(len(content) == room for content in contents[:-1])
        assert all(0 < len(content) <= room for content in contents)
    packer.finish()
    assert packer.counts.dropped_blocks == packer.counts.dropped_tokens == 0


@given(units=UNITS, prefix=SPECIAL, suffix=SPECIAL, length=st.integers(5, 20))
def test_with_join_blocks_are_full_and_the_stream_is_kept(units, prefix, suffix, length):
    separator = 7
    packer = BlockPacker(length, prefix, suffix, join=True, separator=separator, minimum=3)
    blocks = [block.tolist() for block in packer.pack(units)]
    packer.finish()
    assert all(len(block) == length for block in blocks)
    stream = [token for block in blocks for token in block[len(prefix) : length - len(suffix)]]
    expected = [token for unit in units if unit for token in [separator, *unit]][1:]
    assert stream == expected[: len(stream)]
    assert packer.counts.dropped_tokens == len(expected) - len(stream) < length
    assert packer.counts.tokens == len(blocks) * length


@given(
    units=st.lists(st.lists(st.lists(st.integers(10, 99), min_size=1, max_size=9), max_size=6), max_size=8),
    length=st.integers(6, 20),
    join=st.booleans(),
)
def test_pairs_are_adjacent_text_cut_where_a_sentence_ends(units, length, join):
    def pack():
        packer = BlockPacker(length, [1], [2], join=join, separator=2, pairs=True, minimum=4)
        marked = [
            [~token if place == 0 else token for sentence in unit for place, token in enumerate(sentence)]
            for unit in units
        ]
        blocks = [block.tolist() for block in packer.pack(marked)]
        packer.finish()
        return blocks, packer.counts

    blocks, counts = pack()
    assert pack() == (blocks, counts)
    texts = [[token for sentence in unit for token in sentence] for unit in units]
    ends = [{sum(map(len, unit[:count])) for count in range(len(unit))} for unit in units]
    if join:
        starts = [sum(map(len, texts[:count])) for count in range(len(texts))]
        ends = [{start + end for start, own in zip(starts, ends, strict=True) for end in own}]
        texts = [[token for text in texts for token in text]]
    room, waiting = length - 3, iter(blocks)
    for text, own in zip(texts, ends, strict=True):
        for start in range(0, len(text), room):
            content = text[start : start + room]
            if len(content) < (room if join else min(4, room)):
                counts.dropped_tokens -= len(content)
                continue
            block = next(waiting)
            middle = block.index(2)
            assert block == [1, *content[: middle - 1], 2, *content[middle - 1 :], 2]
            inside = {end - start for end in own} & set(range(1, len(content)))
            assert middle - 1 in (inside or range(1, len(content)))
            assert segments_of(block, 2).tolist() == [0] * (middle + 1) + [1] * (len(block) - middle - 1)
    assert next(waiting, None) is None and counts.dropped_tokens == 0


def test_every_place_where_a_sentence_ends_is_as_likely():
    found = [0, 0, 0]
    for number in range(300):
        packer = BlockPacker(11, [1], [2], separator=2, pairs=True)
        (block,) = packer.pack([[~number, 10, ~11, 12, ~13, 14, ~15, 16]])
        found[block.tolist().index(2) // 2 - 1] += 1
    assert min(found) > 75


def test_sentence_by_sentence_the_tokens_are_those_of_the_whole_text():
    encoder, texts = TokenEncoder(tiny_tokenizer()), [*documents(4), "", " \n", "One only"]
    marked = encoder.encode_sentences(texts)
    assert [[token if token >= 0 else ~token for token in ids.tolist()] for ids in marked] == [
        ids.tolist() for ids in encoder.encode(texts)
    ]
    assert [sum(token < 0 for token in ids) for ids in marked] == [13, 13, 13, 13, 0, 0, 1]


def test_short_blocks_are_dropped_and_counted():
    packer = BlockPacker(6, [1], [2], minimum=3)
    assert [block.tolist() for block in packer.pack([[5, 5], [6] * 6, [7, 7, 7], []])] == [
        [1, 6, 6, 6, 6, 2],
        [1, 7, 7, 7, 2],
    ]
    assert packer.counts == PackingCounts(blocks=2, tokens=11, dropped_blocks=2, dropped_tokens=4)


@pytest.mark.parametrize(
    ("name", "prefix", "suffix", "separator"),
    [
        ("bert_tokenizer", ["[CLS]"], ["[SEP]"], "[SEP]"),
        ("llama_tokenizer", ["<s>"], [], "</s>"),
        ("plain_tokenizer", [], [], "<|end|>"),
    ],
)
def test_special_tokens_are_found(request, name, prefix, suffix, separator):
    tokenizer = request.getfixturevalue(name)
    encoder = TokenEncoder(tokenizer)
    assert tokenizer.convert_ids_to_tokens(encoder.prefix) == prefix
    assert tokenizer.convert_ids_to_tokens(encoder.suffix) == suffix
    assert encoder.separator == tokenizer.convert_tokens_to_ids(separator)
    text = "Plain words."
    assert [*encoder.prefix, *encoder.encode([text])[0], *encoder.suffix] == tokenizer(text)["input_ids"]


def test_padding_and_truncation_of_the_file_are_ignored_and_left_alone(bert_tokenizer):
    plain = TokenEncoder(bert_tokenizer).fingerprint()
    backend = bert_tokenizer.backend_tokenizer
    backend.enable_padding(length=16)
    backend.enable_truncation(16)
    before = backend.to_str()
    encoder = TokenEncoder(bert_tokenizer)
    assert list(map(len, encoder.encode(["a", "b" * 50]))) == [1, 50]
    assert (len(encoder.prefix), len(encoder.suffix)) == (1, 1)
    assert backend.to_str() == before
    assert encoder.fingerprint() == plain


def test_special_tokens_in_the_text_are_plain_text(bert_tokenizer):
    encoder = TokenEncoder(bert_tokenizer)
    for copy in (encoder, pickle.loads(pickle.dumps(encoder))):
        ids = copy.encode(["a [SEP] b"])[0]
        assert len(ids) == len("a [SEP] b")
        assert copy.separator not in ids
        assert copy.fingerprint() == encoder.fingerprint()


def test_huge_texts_are_encoded_whole(bert_tokenizer):
    encoder = TokenEncoder(bert_tokenizer)
    huge = "word " * 90_000 + "x" * 450_000
    assert list(map(len, encoder.encode(["a", huge, ""]))) == [1, len(huge), 0]


def test_tokenizers_without_fast_backend():
    encoder = TokenEncoder(ByT5Tokenizer(model_max_length=4))
    assert [ids.tolist() for ids in encoder.encode(["abcdefg", "b"])] == [[100, 101, 102, 103, 104, 105, 106], [101]]
    assert (encoder.prefix, encoder.suffix, encoder.separator) == ([], [1], 1)
    assert len(encoder.fingerprint()) == 32
