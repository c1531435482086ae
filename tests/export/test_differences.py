"""The comparison counts real tokens only, and its bounds hold."""

from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BatchEncoding, PreTrainedTokenizerFast

from limbeck.core.exports import Differences, Export
from limbeck.export.batches import make_batches, mark_words, tokenise
from limbeck.export.differences import ExportMismatchError, check_differences, check_int8_quality, measure_differences
from limbeck.models.sample_texts import built_in_texts
from limbeck.report.export_text import export_lines
from tests.support.models import tiny_tokenizer

NAMES = ("input_ids", "attention_mask", "token_type_ids")
TEXTS = ["the model", "a text of the student", ("we", "it")]


@pytest.fixture
def batches():
    return make_batches(tiny_tokenizer(), TEXTS, NAMES, 128)


def constant(name, make):
    return lambda batch: {name: make(batch)}


def hidden(batch, real=0.0, padding=0.0):
    rows = torch.full((*batch.valid.shape, 4), real)
    return rows.masked_fill(~batch.valid.unsqueeze(-1), padding)


def test_padding_is_not_compared(batches):
    source = constant("last_hidden_state", lambda batch: hidden(batch, 1.0, padding=5.0))
    export = constant("last_hidden_state", lambda batch: hidden(batch, 1.5, padding=float("nan")))
    result = measure_differences(source, export, batches, None)
    assert result.largest == {"last_hidden_state": 0.5} and result.scale == {"last_hidden_state": 1.0}
    assert result.cosine["lowest"] == pytest.approx(1.0)
    assert (result.texts, result.equal_decisions) == (3, None)


def test_logits_of_a_text_are_all_compared_however_long_the_rows_are(batches):
    two_rows = [batch for batch in batches if len(batch.texts) == 3][:1]
    source = constant("logits", lambda batch: torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    export = constant("logits", lambda batch: torch.tensor([[1.0, 0.0], [2.5, 2.0], [3.0, 0.0]]))
    result = measure_differences(source, export, two_rows, "classification")
    assert result.largest == {"logits": 2.5}
    assert result.equal_decisions == pytest.approx(2 / 3)
    p, q = torch.softmax(torch.tensor([0.0, 2.0]), 0), torch.softmax(torch.tensor([2.5, 2.0]), 0)
    assert result.mean_kl == pytest.approx(float((p * (p / q).log()).sum()) / 3)


@pytest.mark.parametrize(("head", "name"), [
    ("classification", "logits"),
    ("token_classification", "logits"),
    ("question_answering", "start_logits"),
])  # fmt: skip
def test_the_decisions_on_a_text_count_once_however_many_batches_have_it(batches, head, name):
    assert sum(len(batch.texts) for batch in batches) > 3

    def scores(of_texts):
        def make(batch):
            rows = [of_texts(text) for text in batch.texts]
            values = torch.tensor(rows)
            if head == "classification":
                return values
            if head == "token_classification":
                return values[:, None, :].expand(*batch.valid.shape, 2)
            # The answer begins at the first or the second token of the row.
            first = batch.valid.int().argmax(1)
            ends = torch.zeros(batch.valid.shape)
            return ends.scatter(1, (first + values.argmax(1))[:, None], 1.0)

        return constant(name, make)

    source = scores(lambda text: [1.0, 0.0])
    export = scores(lambda text: [0.0, 1.0] if text == "the model" else [1.0, 0.0])
    result = measure_differences(source, export, batches, head)
    decisions = [1, 1, 1]
    if head == "token_classification":
        decisions = [2, 5, 2]  # The words of the texts.
        tokens = [len(row["input_ids"]) for row in tokenise(tiny_tokenizer(), TEXTS, NAMES, 128)]
        assert result.equal_tokens == pytest.approx(1 - tokens[0] / sum(tokens))
    assert result.equal_decisions == pytest.approx(1 - decisions[0] / sum(decisions))
    assert result.decisions == sum(decisions)


def tags(differ):
    """Scores of two tags for each token, of which those of the tokens that `differ` marks are exchanged."""

    def make(batch):
        scores = torch.tensor([1.0, 0.0]).expand(*batch.valid.shape, 2)
        return torch.where(differ(batch)[..., None], scores.flip(-1), scores)

    return constant("logits", make)


def test_tags_are_decided_at_the_first_token_of_each_word():
    tokenizer = tiny_tokenizer()
    text = "the xyzzy teacher."
    pieces = tokenizer.tokenize(text)
    batches = make_batches(tokenizer, [text], NAMES, 128)
    words = [batch.word_starts[batch.valid].tolist() for batch in batches]
    # The sign behind the last word is no word by itself, and neither are the special tokens.
    assert words == len(batches) * [[False, *first_tokens(tokenizer, text), False]]
    assert sum(words[0]) == 3 < len(pieces)
    assert all(not batch.word_starts[~batch.valid].any() for batch in batches)

    same = tags(lambda batch: torch.zeros_like(batch.valid))
    others_differ = tags(lambda batch: batch.valid & ~batch.word_starts)
    result = measure_differences(same, others_differ, batches, "token_classification")
    assert (result.equal_decisions, result.decisions, result.decided) == (1.0, 3, "words")
    assert result.equal_tokens == pytest.approx(3 / len(words[0])) and result.mean_kl == pytest.approx(0.0)
    # The rest of the tokens does not let words pass, and words do not let the rest pass.
    with pytest.raises(ExportMismatchError, match="share of equal decisions is 0.5"):
        check_int8_quality(result.model_copy(update={"equal_tokens": 0.5}))
    words_differ = tags(lambda batch: batch.word_starts)
    assert measure_differences(same, words_differ, batches, "token_classification").equal_decisions == 0.0


def first_tokens(tokenizer, text):
    """Whether each token of a text is the first of one of its words, by the words tokenised one by one."""
    marks = []
    for word in text.split():
        marks += [True] + [False] * (len(tokenizer.tokenize(word)) - 1)
    return marks


@pytest.mark.parametrize("text", ["ünï 東京 the", "  the   model ", "a\tb"])
def test_words_of_bytes_have_one_first_token_each(text):
    backend = Tokenizer(BPE({letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    (marks,) = mark_words(tokenizer, [text], 128)
    assert sum(marks) == len(text.split()) < len(marks)
    # Each letter is a token, so that a word begins with its space, as in training.
    firsts = [token for token, is_first in zip(tokenizer.tokenize(text), marks, strict=True) if is_first]
    assert set(firsts) <= {"Ġ", "ĉ"}


class SlowTokenizer:
    """Gives each text two tokens between special ones, and does not tell their characters."""

    init_kwargs: ClassVar = {}

    def __call__(self, texts, **options):
        return BatchEncoding({"input_ids": [[2, 7, 8, 3] for _ in texts]})

    def get_special_tokens_mask(self, ids, already_has_special_tokens):
        return [int(number in (2, 3)) for number in ids]


def test_tokens_that_are_not_special_count_where_the_words_are_not_known():
    assert mark_words(SlowTokenizer(), ["teacher"], 128) == [[False, True, True, False]]
    batches = make_batches(tiny_tokenizer(), ["the xyzzy"], NAMES, 128)
    batches = [replace(batch, has_words=False) for batch in batches]
    same = tags(lambda batch: torch.zeros_like(batch.valid))
    assert measure_differences(same, same, batches, "token_classification").decided == "tokens"


def test_a_text_with_several_labels_is_one_decision(batches):
    rows = [batch for batch in batches if len(batch.texts) == 3][:1]
    source = constant("logits", lambda batch: torch.tensor([[1.0, -1.0, -1.0]] * 3))
    export = constant("logits", lambda batch: torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, 0.5], [2.0, -3.0, -1.0]]))
    result = measure_differences(source, export, rows, "multi_label")
    assert result.equal_decisions == pytest.approx(2 / 3), "of nine labels, eight are equal"
    assert (result.decisions, result.decided) == (3, "texts, each with all of its labels")


@pytest.mark.parametrize(("head", "decided", "number"), [
    ("token_classification", "words", "1,800"),
    ("multi_label", "texts, each with all of its labels", "300"),
    ("question_answering", "starts and ends of answers", "600"),
])  # fmt: skip
def test_the_line_on_decisions_names_what_is_decided_on(head, decided, number):
    count = int(number.replace(",", ""))
    shares = differences(texts=300, equal_decisions=0.97, decisions=count, decided=decided, mean_kl=0.01)
    record = Export(format="onnx-int8", dtype="int8", head=head, megabytes=1.0, development=shares, differences=shares)
    lines = export_lines(record)
    interval = " (95 %: 94.4% to 98.4%)" if count == 300 else ""
    expected = (
        f"On 300 held-out rows of the run, decisions equal to the source's: 97.0% of {number} {decided}{interval}."
    )
    assert any(line.startswith(expected) for line in lines)


def test_an_answer_is_never_in_the_padding(batches):
    def ends(padding):
        def make(batch):
            scores = torch.arange(batch.valid.shape[1]).float().expand(batch.valid.shape)
            return scores.masked_fill(~batch.valid, padding)

        return make

    export = constant("start_logits", ends(padding=1000.0))
    result = measure_differences(constant("start_logits", ends(padding=0.0)), export, batches, "question_answering")
    assert result.equal_decisions == 1.0 and result.mean_kl == pytest.approx(0.0)


def differences(largest=0.0, scale=1.0, **fields):
    return Differences(largest={"logits": largest}, scale={"logits": scale}, **fields)


def test_the_bound_grows_with_the_values_and_refuses_nan():
    check_differences(differences(9e-5), "float32")
    check_differences(differences(9e-4, scale=10.0), "float32")
    check_differences(differences(0.04), "float16")
    for bad in (differences(2e-4), differences(2e-4, scale=0.1), differences(float("nan"))):
        with pytest.raises(ExportMismatchError, match=r"differs from its source by .* in logits"):
            check_differences(bad, "float32")
    assert ExportMismatchError.exit_code == 1


def test_int8_has_to_keep_vectors_decisions_or_values():
    check_int8_quality(differences(0.5, cosine={"mean": 0.96, "lowest": 0.1}))
    check_int8_quality(differences(0.5, equal_decisions=0.9))
    check_int8_quality(differences(0.09))
    for bad, what in (
        (differences(cosine={"mean": 0.94, "lowest": 0.9}), "mean cosine"),
        (differences(equal_decisions=0.89), "share of equal decisions"),
        (differences(0.2), "share of the largest value"),
        (differences(cosine={"mean": float("nan"), "lowest": float("nan")}), "mean cosine"),
    ):
        with pytest.raises(ExportMismatchError, match=what):
            check_int8_quality(bad)


def test_batches_have_texts_alone_and_padding_on_both_sides(batches):
    shapes = {tuple(batch.valid.shape) for batch in batches}
    assert len(shapes) > 3 and min(rows for rows, _ in shapes) == 1
    left = [batch for batch in batches if not batch.valid[:, 0].all()]
    right = [batch for batch in batches if not batch.valid[:, -1].all()]
    assert len(left) == 1 and right
    assert any(not batch.valid[:, -1].any() for batch in batches), "columns of padding alone"
    for batch in batches:
        assert set(batch.inputs) == set(NAMES)
        assert (batch.inputs["input_ids"][~batch.valid] == tiny_tokenizer().pad_token_id).all()
    assert any(batch.inputs["token_type_ids"].any() for batch in batches), "the second text of a pair"


def test_texts_without_a_token_are_left_out_and_long_ones_are_cut():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    texts = ["", "the model " * 100]
    rows = tokenise(tokenizer, texts, ("input_ids", "attention_mask"), 16)
    assert [len(row["input_ids"]) for row in rows] == [0, 16]
    batches = make_batches(tokenizer, texts, ("input_ids", "attention_mask"), 16)
    assert {text for batch in batches for text in batch.texts} == {texts[1]}


def test_built_in_texts_reach_from_empty_to_long_and_over_scripts():
    texts = [text for text in built_in_texts(pairs=False) if isinstance(text, str)]
    assert "" in texts and max(map(len, texts)) > 4000
    assert {"я", "な", "模", "م", "ा"} <= set("".join(texts))
    assert any(isinstance(text, tuple) for text in built_in_texts(pairs=True))
