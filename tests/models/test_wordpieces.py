"""WordPieces that are trained on text: the same ones each time, cut as the library cuts them."""

import random

import pytest
from transformers import BertConfig, RobertaConfig

from limbeck.errors import ModelError
from limbeck.models.wordpieces import read_wordpieces, set_special_ids, train_wordpieces

SYLLABLES = ["lim", "beck", "dis", "till", "er", "ing", "stu", "dent", "tea", "cher", "é", "ß", "蒸", "馏"]


def texts_of(seed=0):
    generator = random.Random(seed)
    return [
        " ".join("".join(generator.choices(SYLLABLES, k=generator.randint(1, 3))).title() for _ in range(12))
        for _ in range(200)
    ]


def train(texts, words=150, **options):
    return train_wordpieces(lambda: texts, words, **options)


def test_the_same_texts_give_the_same_tokenizer():
    texts = texts_of()
    first = train(texts).backend_tokenizer.to_str()
    for _ in range(4):
        assert train(texts).backend_tokenizer.to_str() == first
    assert train(texts_of(1)).backend_tokenizer.to_str() != first


def test_frequent_words_are_whole_and_rare_letters_unknown():
    words = {"limbeck": 50, "retort": 23, "flask": 11, "crucible": 7, "bellows": 6, "zinc": 5}
    text = " ".join(word for word, count in words.items() for _ in range(count))
    tokenizer = train([text, "ω"], 64)
    assert tokenizer.tokenize("limbeck retort") == ["limbeck", "retort"]
    assert "".join(tokenizer.tokenize("flaskbeck")).replace("##", "") == "flaskbeck"
    # At most one token in four is a letter, the most frequent first.
    assert tokenizer.tokenize("ω") == ["[UNK]"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_tokens_of_texts_and_pairs(lowercase, tmp_path):
    tokenizer = train(texts_of(), lowercase=lowercase)
    assert (tokenizer.tokenize("Limbeck") == tokenizer.tokenize("limbeck")) is lowercase
    pair = tokenizer("Student", "Teacher")
    ids = pair["input_ids"]
    assert (ids[0], ids.count(tokenizer.sep_token_id), ids[-1]) == (2, 2, 3)
    assert pair["token_type_ids"][-1] == 1
    assert "token_type_ids" not in train(texts_of(), has_segments=False)("Student", "Teacher")
    # Letters are no special tokens.
    assert tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "").lower() == "studentteacher"
    tokenizer.save_pretrained(tmp_path)
    assert read_wordpieces(tmp_path)("Student", "Teacher")["input_ids"] == ids


def test_too_few_words_are_refused_with_their_number():
    with pytest.raises(ModelError, match=r"gives only (\d+) WordPieces; give a number up to \1"):
        train(texts_of(), 20_000)


@pytest.mark.parametrize("config", [BertConfig(), RobertaConfig()])
def test_a_configuration_gets_the_ids_that_it_has(config):
    had = {name for name in vars(config) if name.endswith("_token_id") and getattr(config, name) is not None}
    set_special_ids(config)
    assert config.pad_token_id == 0
    assert {name for name in vars(config) if name.endswith("_token_id") and getattr(config, name) is not None} == had
