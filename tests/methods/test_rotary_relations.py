"""Relations under rotary positions: those of the same content do not depend on its place in the text."""

import pytest
import torch

from limbeck.errors import LimbeckError
from limbeck.methods import METHODS, Pairing
from limbeck.models.families import shape_of
from limbeck.models.streams import StreamKey
from limbeck.models.taps import StreamTap
from limbeck.models.teaching_facts import facts_of_shape
from tests.support.models import ALL_FAMILIES, tiny_config, tiny_model

ROTARY = ("modernbert", "nomic_bert", "eurobert", "llama", "qwen3", "gte", "gemma3_text")
SHIFT = 20


def shape(family, **changes):
    return shape_of(tiny_config(family, **changes))


def compose(student, teacher, **options):
    method = METHODS["minilmv2"]
    return method.compose(method.options(**options), Pairing(student, facts_of_shape(teacher)))


def relations(first, second, heads):
    """The relations of two streams `[B, L, width]`, head by head in float64: `[B, heads, L, L]`."""
    parts = [stream.double().unflatten(-1, (heads, -1)).transpose(1, 2) for stream in (first, second)]
    scores = parts[0] @ parts[1].transpose(-1, -2) / parts[0].shape[-1] ** 0.5
    return scores.softmax(-1)


def streams_at(tap, ids, first_position):
    """The tap's streams of the same tokens at positions from `first_position` on."""
    positions = torch.arange(ids.shape[1]).expand_as(ids) + first_position
    with torch.no_grad():
        return tap(ids, torch.ones_like(ids), position_ids=positions)


def largest_change(tap, term, heads):
    """The largest change of a term's teacher relations when the same content stands `SHIFT` positions further on."""
    ids = torch.randint(5, 60, (2, 12), generator=torch.Generator().manual_seed(0))
    before, after = streams_at(tap, ids, 0), streams_at(tap, ids, SHIFT)
    keys = (term.teacher[0], term.teacher[-1])
    return (
        (relations(*(before[key] for key in keys), heads) - relations(*(after[key] for key in keys), heads)).abs().max()
    )


def test_families_with_rotary_positions_are_known():
    found = [family for family in (*ALL_FAMILIES, "deberta-v2", "gte", "gemma3_text") if shape(family).rotary]
    assert sorted(found) == sorted(ROTARY)


@pytest.mark.parametrize("family", ROTARY)
def test_relations_of_the_same_content_are_equal_at_shifted_positions(family):
    model = tiny_model(family).eval()
    teacher = shape_of(model.config)
    terms = compose(shape(family, layers=2), teacher)
    assert [term.name for term in terms] == ["query_query", "key_key", "value_value"]
    last = teacher.layers
    with StreamTap(model, [StreamKey(name, last) for name in ("query", "key", "value")]) as tap:
        for term in terms:
            heads = term.options["heads"]
            assert heads == min(teacher.heads, teacher.key_value_heads)
            assert largest_change(tap, term, heads) < 1e-5
        # Heads of half a head's width part the pairs that are turned together.
        parted = [largest_change(tap, term, 2 * teacher.heads) for term in terms[:1]]
        assert min(parted) > 1e-2


def test_relation_heads_divide_the_attention_heads_of_both_models():
    teacher = shape("modernbert")
    assert compose(shape("modernbert", hidden=24, heads=2), teacher)[0].options["heads"] == 2
    assert compose(shape("bert", hidden=24, heads=2), teacher)[0].options["heads"] == 4
    assert compose(shape("modernbert"), shape("bert"))[0].options["heads"] == 4
    assert compose(shape("bert"), shape("bert"))[0].options["heads"] == 48
    # Each stream has heads of its own, as llama's keys have.
    for pair, heads in (("query-query", 4), ("key-key", shape("llama").key_value_heads)):
        assert compose(shape("llama"), shape("llama"), relations={pair: 1})[0].options["heads"] == heads
    # Values are not turned, so that their relations may have any number of heads.
    values = compose(shape("modernbert"), teacher, relations={"value-value": 1})
    assert values[0].options["heads"] == 48


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relation_heads": 8}, "relation_heads 8 cuts through the 4 attention heads of the student's key"),
        ({"relation_heads": 48}, "use a divisor of both models' attention heads such as 4, or 'auto'"),
        (
            {"relations": {"query-value": 1}},
            "Relation 'query-value' mixes values with vectors that the student's rotary",
        ),
    ],
)
def test_relations_that_depend_on_the_place_of_words_are_refused(options, message):
    with pytest.raises(LimbeckError) as caught:
        compose(shape("modernbert"), shape("modernbert"), **options)
    assert message in str(caught.value)
    assert compose(shape("bert"), shape("bert"), **options)


def test_divisors_of_the_attention_heads_may_be_asked_for():
    terms = compose(shape("modernbert"), shape("modernbert"), relation_heads=2)
    assert [term.options["heads"] for term in terms] == [2, 2, 2]
    related = {"query-query": 1, "query-key": 1, "value-value": 1}
    assert len(compose(shape("modernbert"), shape("modernbert"), relations=related)) == 3
