import pickle
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from limbeck.corpus.tokens import word_table
from limbeck.corpus.tokens.word_table import WordTable, word_mark

PIECES = [
    *"abcdefghijklmnopqrstuvwxyz0123456789",
    *"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "the",
    "ing",
    "你",
    "好",
    "é",
    "ß",
]
ASKED = [
    "The king, singing: 3.14 = [SEP] and so on|and on.",
    "\u037e ; \u2260 = \u1fef ` \u226e < |",  # Characters that are decomposed into ASCII punctuation.
    "a\u0301 \u0301b .\u0301 e\u0316\u0301 e\u0301\u0316 \u0130stanbul \u03a3\u03a3",
    "a\tb\u00a0c\u2028d\u3000e\x0bf\x1cg\x00h\ufeffi\u200bj\ufffdk\u00adl",
    "你好，世界。你好! あいう 한국어 \U0001f600\U00020000 ﬁ Å",
    "  \n\n a \n",
    "",
    "x" * 99 + " " + "x" * 101 + "." + "é" * 60,
]
LETTERS = st.text(
    st.one_of(
        st.sampled_from(" \n|.,;`=<>~#aéÅ\u0301\u0327\u00a0\u2028\u037e你"), st.characters(exclude_categories=["Cs"])
    )
)


def backend_of(known=None, **normalizing):
    known = [*PIECES, *(f"##{piece}" for piece in PIECES), "[UNK]", "[SEP]"] if known is None else known
    backend = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(known)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(**normalizing)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(["[SEP]"])
    backend.encode_special_tokens = True
    return backend


def plainly(backend, texts):
    return [encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)]


def looked_up(table, texts):
    found = table.encode(texts)
    return None if found is None else [ids.tolist() for ids in found]


BACKENDS = [
    backend_of(),
    backend_of(lowercase=False),
    backend_of(lowercase=False, strip_accents=True, clean_text=False, handle_chinese_chars=False),
]
TABLES = [WordTable(backend, word_mark(backend)) for backend in BACKENDS]


@given(texts=st.lists(LETTERS, max_size=4))
@example(texts=ASKED)
@example(texts=[unicodedata.normalize("NFD", text) for text in ASKED])
def test_looked_up_words_are_the_tokens_of_the_text(texts):
    for backend, table in zip(BACKENDS, TABLES, strict=True):
        assert looked_up(table, texts) == plainly(backend, texts)


#: All characters of alphabets, and one of sixteen of the rest, which are ideographs, syllables and private ones.
FEWER_CHARACTERS = [*range(0x3000), *range(0x3000, 300_000, 16)]


@pytest.mark.parametrize(
    "codes",
    [pytest.param(FEWER_CHARACTERS, id="fewer"), pytest.param(range(300_000), id="all", marks=pytest.mark.slow)],
)
def test_every_character_alone_and_beside_others(codes):
    characters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    texts = []
    for start in range(0, len(characters), 5000):
        part = characters[start : start + 5000]
        texts.append("".join(f"a{c}b {c} .{c}e\u0301 " for c in part))
    for backend, table in zip(BACKENDS, TABLES, strict=True):
        assert looked_up(table, texts) == plainly(backend, texts)


def test_a_full_table_begins_anew(monkeypatch):
    backend = backend_of()
    table = WordTable(backend, word_mark(backend))
    monkeypatch.setattr(word_table, "_MOST_BYTES", 40 * word_table._BYTES_PER_WORD)
    sizes = []
    for start in range(0, 900, 30):
        texts = [f"the {number} ings {start}" for number in range(start, start + 30)]
        assert looked_up(table, texts) == plainly(backend, texts)
        sizes.append(len(table._numbers))
    assert max(sizes) < 110 and sorted(sizes) != sizes


def test_text_of_new_words_is_left_to_the_tokenizer(monkeypatch):
    backend = backend_of()
    table = WordTable(backend, word_mark(backend))
    monkeypatch.setattr(word_table, "_WORDS_TO_JUDGE_BY", 2)
    assert looked_up(table, ["a b"]) == plainly(backend, ["a b"])
    assert table.encode(["你好" * 50]) is None
    assert looked_up(table, ["a b a b a b", "c"]) == plainly(backend, ["a b a b a b", "c"])


def test_copies_look_up_the_same():
    backend = backend_of()
    table = WordTable(backend, word_mark(backend))
    table.encode(["the ing"])
    assert looked_up(pickle.loads(pickle.dumps(table)), ASKED) == plainly(backend, ASKED)


def test_ids_are_small_and_of_the_caller(monkeypatch):
    table = WordTable(backend_of(), "|")
    first = table.encode(["the | the"])[0]
    assert first.dtype == np.int32
    first[:] = -1
    assert table.encode(["the"])[0].tolist() == [PIECES.index("the")]


@pytest.mark.parametrize(
    "change",
    [
        lambda backend: setattr(backend, "normalizer", normalizers.NFKC()),
        lambda backend: setattr(backend, "normalizer", None),
        lambda backend: setattr(backend, "pre_tokenizer", pre_tokenizers.Whitespace()),
        lambda backend: setattr(backend, "model", models.BPE({"a": 0}, [], dropout=0.5)),
        lambda backend: backend.add_tokens([AddedToken("New York")]),
        lambda backend: setattr(backend, "model", models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]")),
    ],
)
def test_other_tokenizers_have_no_mark(change):
    backend = backend_of()
    assert word_mark(backend) == "|"
    change(backend)
    assert word_mark(backend) is None
