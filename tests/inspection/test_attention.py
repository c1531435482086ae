"""Attention that is rebuilt from queries and keys is the model's own, and its divergence is the one by hand."""

import math
from dataclasses import replace

import pytest
import torch

from limbeck.errors import ModelError, RecipeError
from limbeck.inspection import MEAN_HEAD, draw_maps, measure_divergence
from limbeck.inspection.attention_divergence import divergence_sums
from limbeck.inspection.attention_rule import AttentionRule, attention_rules, log_attention
from tests.support.inspection import TEXTS, own_attention, tiny_subject
from tests.support.models import ALL_FAMILIES, tiny_tokenizer

REBUILT = [family for family in ALL_FAMILIES if family != "mpnet"]
LONG = " ".join(TEXTS)


@pytest.mark.parametrize(
    ("family", "changes"),
    [*((family, {}) for family in REBUILT), ("gpt2", {"scale_attn_weights": False}),
     ("gpt2", {"scale_attn_by_inverse_layer_idx": True})],
)  # fmt: skip
def test_maps_are_the_models_own(family, changes):
    subject = tiny_subject(family, **changes)
    own = own_attention(subject, LONG)
    layers = range(1, 5)
    found = draw_maps(subject, None, LONG, layers=[(i, i) for i in layers], heads_shown=[1, 4, MEAN_HEAD])
    assert len(found.tokens) == own[0].shape[-1]
    for place, (attention, beside) in enumerate(found.pairs):
        wanted = own[place // 3]
        wanted = wanted.mean(0) if attention.head == MEAN_HEAD else wanted[attention.head - 1]
        torch.testing.assert_close(torch.tensor(attention.values).double(), wanted, atol=2e-6, rtol=1e-4)
        assert beside is None


def test_windows_are_seen_in_the_maps():
    subject = tiny_subject("modernbert")
    assert [rule.window for rule in attention_rules(subject)] == [None, 9, 9, None]
    far, near = (pair[0].values[0][-1] for pair in draw_maps(subject, None, LONG, layers=[(1, 1), (2, 2)]).pairs)
    assert far > 0 == near


def test_position_biases_are_refused_and_not_drawn_wrongly():
    subject = tiny_subject("mpnet", name="some-mpnet")
    with pytest.raises(ModelError, match=r"'some-mpnet' \(mpnet\) cannot be rebuilt .* layer 1 .* position biases"):
        draw_maps(subject, None, TEXTS[0], layers=[(1, 1)])
    with pytest.raises(ModelError, match="cannot be rebuilt"):
        measure_divergence(subject, subject, TEXTS)
    torch.nn.init.zeros_(subject.model.encoder.relative_attention_bias.weight)
    found = draw_maps(subject, None, TEXTS[0], layers=[(1, 1)])
    assert sum(found.pairs[0][0].values[0]) == pytest.approx(1, abs=1e-5), "without their biases they can be rebuilt"


def test_padding_takes_no_part():
    rule = AttentionRule(heads=2, key_heads=1, scaling=0.5, causal=False, window=3)
    query, key = torch.randn(2, 6, 8), torch.randn(2, 6, 4)
    valid = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    found = log_attention(query, key, valid, rule).exp()
    assert found[1, :, :2, 2].eq(0).all()
    assert found[1, :, 3, 4:].eq(0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 2, 6))
    key[1, [2, 4, 5]] = float("nan")
    query[1, [2, 4, 5]] = float("nan")
    again = log_attention(query, key, valid, rule).exp()
    torch.testing.assert_close(again[1][:, valid[1]], found[1][:, valid[1]])


def naive_divergence(student, teacher, texts, s, t, head):
    """By the definition, a token at a time; `head` None averages the maps."""
    total, count = 0.0, 0
    for text in texts:
        ours, theirs = own_attention(student, text)[s], own_attention(teacher, text)[t]
        ours, theirs = (side.mean(0) if head is None else side[head] for side in (ours, theirs))
        pairs = zip(theirs.flatten().tolist(), ours.flatten().tolist(), strict=True)
        total += sum(p * math.log(p / q) for p, q in pairs if p > 0)
        count += len(ours)
    return total / count


@pytest.mark.parametrize("family", ["bert", "qwen3"])
def test_divergence_is_the_definition(family):
    student, teacher = tiny_subject(family, layers=2), tiny_subject(family, seed=7)
    found = measure_divergence(student, teacher, TEXTS)
    assert found.by_head
    assert (len(found.values), len(found.values[0]), len(found.values[0][0])) == (2, 4, 4)
    assert found.tokens == sum(len(student.tokenizer(text)["input_ids"]) for text in TEXTS)
    for s, t, head in ((0, 0, 0), (1, 3, 2), (1, 0, 3)):
        wanted = naive_divergence(student, teacher, TEXTS, s, t, head)
        assert found.values[s][t][head] == pytest.approx(wanted, rel=1e-4)
    assert found.means[1][3] == pytest.approx(sum(found.values[1][3]) / 4)
    assert found.nearest[1] == 1 + found.means[1].index(min(found.means[1]))


def test_rows_of_padding_are_not_counted_whatever_they_hold():
    valid = torch.tensor([[True, True, True], [True, True, False]])
    rule = AttentionRule(heads=2, key_heads=2, scaling=1.0, causal=False, window=None)
    maps = [log_attention(torch.randn(2, 3, 4), torch.randn(2, 3, 4), valid, rule)[None] for _ in range(2)]
    entropy, cross = divergence_sums(maps[0], maps[1], valid)
    wanted = sum(
        (teacher.exp() * (teacher - student).nan_to_num()).sum((1, 2))
        for student, teacher in ((maps[0][0, 0], maps[1][0, 0]), (maps[0][0, 1, :, :2], maps[1][0, 1, :, :2]))
    )
    torch.testing.assert_close((entropy + cross[0])[0].float(), wanted)
    for side in maps:
        side[:, 1, :, 2] = float("nan")
    torch.testing.assert_close(divergence_sums(maps[0], maps[1], valid), (entropy, cross))


def test_models_of_other_head_numbers_are_compared_by_the_mean_map():
    student, teacher = tiny_subject(layers=2, hidden=24, heads=3), tiny_subject(seed=7)
    found = measure_divergence(student, teacher, TEXTS)
    assert not found.by_head
    assert found.values[1][2] == (pytest.approx(naive_divergence(student, teacher, TEXTS, 1, 2, None), rel=1e-4),)


def test_a_model_is_no_distance_from_itself_and_not_as_far_one_way_as_the_other():
    one, other = tiny_subject(), tiny_subject(seed=3)
    same = measure_divergence(one, one, TEXTS)
    assert [same.values[layer][layer][0] for layer in range(4)] == pytest.approx([0] * 4, abs=1e-6)
    there, back = measure_divergence(one, other, TEXTS), measure_divergence(other, one, TEXTS)
    assert there.values[0][1][0] != pytest.approx(back.values[1][0][0], rel=1e-2)


def test_what_the_student_cannot_see_is_undefined():
    subject = tiny_subject("modernbert")
    far = measure_divergence(subject, subject, [LONG])
    assert math.isnan(far.means[1][0])  # a window beside a layer that sees all
    assert far.means[0][1] > 0  # the other way around every token is seen
    assert far.nearest == (1, 2, 3, 4)
    near = measure_divergence(subject, subject, ["It is on."])
    assert near.tokens < 9
    assert near.means[1][0] > 0


def test_batches_do_not_change_the_divergence(monkeypatch):
    pair = tiny_subject(layers=2), tiny_subject(seed=7)
    whole = measure_divergence(*pair, TEXTS)
    monkeypatch.setattr("limbeck.inspection.attention_divergence._MOST_ENTRIES", 1)
    assert measure_divergence(*pair, TEXTS).means[1] == pytest.approx(whole.means[1], rel=1e-5)


def test_the_models_are_left_as_they_were():
    subject = tiny_subject()
    subject.model.train()
    before = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    attention = subject.model.config._attn_implementation
    measure_divergence(subject, subject, TEXTS)
    draw_maps(subject, None, TEXTS[0], layers=[(1, 1)])
    assert subject.model.training
    assert subject.model.config._attn_implementation == attention
    assert all(torch.equal(before[name], tensor) for name, tensor in subject.model.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"layers": [(5, 1)]}, RecipeError, "Layer 5 does not exist: the student 'small' has layers 1 to 2"),
        ({"layers": [(1, 5)]}, RecipeError, "Layer 5 does not exist: the teacher 'big' has layers 1 to 4"),
        ({"heads_shown": [9]}, RecipeError, "Head 9 does not exist: the student 'small' has heads 1 to 4"),
        ({"sentence": "text " * 200}, ModelError, "has 202 tokens, but 'small' takes at most 128"),
        ({"lowercase": False}, ModelError, "'small' and 'big' cannot be compared token by token"),
    ],
)
def test_mistakes_are_named(changes, error, words):
    options = {"sentence": TEXTS[0], "layers": [(1, 1)], "heads_shown": [1], "lowercase": True} | changes
    student, teacher = tiny_subject(name="small", layers=2), tiny_subject(name="big", seed=7)
    teacher = replace(teacher, tokenizer=tiny_tokenizer("bert", lowercase=options.pop("lowercase")))
    with pytest.raises(error, match=words):
        draw_maps(student, teacher, options.pop("sentence"), **options)
    if "lowercase" in changes:
        with pytest.raises(error, match=words):
            measure_divergence(student, teacher, TEXTS)
