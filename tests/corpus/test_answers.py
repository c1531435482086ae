"""Windows of contexts, against the tokenizer's own and a search through every token."""

import random
from itertools import pairwise

import pytest

from limbeck.corpus import SourceReport
from limbeck.corpus.rows.labelled_rows import NO_ANSWER, LabelledRow
from limbeck.corpus.tokens.answer_windows import AnswerWindows, Question
from tests.support.corpora import byte_tokenizer
from tests.support.models import tiny_tokenizer

LENGTH, STRIDE = 40, 10
WORDS = ("the", "model", "of", "a", "teacher", "is", "ab", "and", "xyz", "student,", "q", "(layer)", "in", "12")


def random_examples(count, seed=0):
    """Contexts of 0 to 60 words with an answer of up to 5 of them; one in five has none."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        words = [draw.choice(WORDS) for _ in range(draw.randint(1, 60))]
        first = draw.randrange(len(words))
        last = min(len(words), first + draw.randint(1, 5))
        start = len(" ".join([*words[:first], ""]))
        label = NO_ANSWER if number % 5 == 4 else (start, start + len(" ".join(words[first:last])))
        found.append(LabelledRow("", " ".join(words), " ".join(draw.choices(WORDS, k=draw.randint(1, 4))), label))
    return found


def by_the_tokenizer(tokenizer, example):
    """Windows as `transformers`' own call and a search through the offsets give them: ids, segments, label, offsets."""
    right = tokenizer.padding_side == "right"
    encoded = tokenizer(
        *((example.pair, example.text) if right else (example.text, example.pair)),
        truncation="only_second" if right else "only_first",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    for number, ids in enumerate(encoded["input_ids"]):
        start, end = example.label
        places = [place for place, text in enumerate(encoded.sequence_ids(number)) if text == int(right)]
        offsets = encoded["offset_mapping"][number]
        label = (0, 0)
        if start >= 0 and offsets[places[0]][0] <= start and end <= offsets[places[-1]][1]:
            inside = [place for place in places if offsets[place][0] < end and offsets[place][1] > start]
            label = (inside[0], inside[-1])
        types = encoded["token_type_ids"][number] if "token_type_ids" in encoded else None
        yield ids, types, label, places[0], [list(offsets[place]) for place in places]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ["bert", "roberta", "llama"])
def test_windows_answers_and_offsets_are_those_of_the_tokenizer(family, side):
    tokenizer = tiny_tokenizer(family)
    tokenizer.padding_side = side
    before = tokenizer.backend_tokenizer.to_str()
    examples, report = random_examples(60), SourceReport()
    cutter = AnswerWindows(tokenizer, LENGTH, STRIDE)
    questions = [Question("", e.pair, e.text, None if e.label == NO_ANSWER else e.label) for e in examples]
    windows = [
        (window.input_ids, window.token_type_ids, window.label, window.first, window.offsets.tolist())
        for window in cutter.cut(questions, report)
    ]
    assert tokenizer.backend_tokenizer.to_str() == before
    assert windows == [window for example in examples for window in by_the_tokenizer(tokenizer, example)]
    rows = cutter.encode(examples, report)
    assert (rows.token_type_ids is not None) == (family == "bert")
    assert rows.input_ids == [ids for ids, *_ in windows]
    assert rows.labels == [list(label) for _, _, label, *_ in windows]
    assert len(windows) > 110
    assert sum(label != [0, 0] for label in rows.labels) >= 44
    assert report.counts == {}


def encode(tokenizer, example, length=LENGTH, stride=STRIDE):
    report = SourceReport()
    return AnswerWindows(tokenizer, length, stride).encode([example], report), report.counts


@pytest.mark.parametrize("template", [None, "<s> $A"])
def test_answers_of_characters_with_several_tokens(template):
    names = {"eos_token": "</s>"} if template is None else {"bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = byte_tokenizer(template, **names)
    context = "Ça va — „très“ bien, 日本語."
    for answer in ("Ça", "„très“", "日本", "ès", ".", context):
        start = context.index(answer)
        rows, _ = encode(tokenizer, LabelledRow("", context, "Où?", (start, start + len(answer))), 100, 0)
        first, last = rows.labels[0]
        assert tokenizer.decode(rows.input_ids[0][first : last + 1]).strip() == answer


def test_a_long_question_is_cut_and_leaves_room_for_the_context():
    tokenizer, context = tiny_tokenizer(), " ".join(WORDS * 5)
    rows, counts = encode(tokenizer, LabelledRow("", context, "the " * 100, (0, 3)))
    # 40 tokens less 3 special ones less 10 shared ones, halved.
    assert counts == {"question cut to 13 tokens": 1}
    question = [tokenizer.cls_token_id, *[tokenizer.convert_tokens_to_ids("the")] * 13, tokenizer.sep_token_id]
    assert all(ids[:15] == question and len(ids) <= LENGTH for ids in rows.input_ids)
    windows = [ids[15:-1] for ids in rows.input_ids]
    assert all(before[-STRIDE:] == after[:STRIDE] for before, after in pairwise(windows))
    joined = [*windows[0], *(token for window in windows[1:] for token in window[STRIDE:])]
    assert joined == tokenizer(context, add_special_tokens=False)["input_ids"]
    assert rows.labels == [[15, 15], *[[0, 0]] * (len(windows) - 1)]


def test_an_answer_without_a_token_is_dropped_and_counted():
    rows, counts = encode(tiny_tokenizer(), LabelledRow("", "the  model", "of", (3, 5)))
    assert (rows.input_ids, counts) == ([], {"answer whose characters are in no token of its context, row left out": 1})


def test_an_answer_longer_than_a_window_is_in_none():
    rows, _ = encode(tiny_tokenizer(), LabelledRow("", " ".join(WORDS * 5), "of", (0, 200)))
    assert rows.labels == [[0, 0]] * len(rows.labels)
    assert len(rows.labels) > 2
