"""What methods come to for given shapes, and what they refuse."""

import pytest
from pydantic import ValidationError

from limbeck.errors import LimbeckError
from limbeck.methods import METHODS, Pairing
from limbeck.methods.layer_choice import resolve_layer, stream_width
from limbeck.methods.minilmv2 import PAIRS
from limbeck.models.families import shape_of
from limbeck.objectives.registry import OBJECTIVES
from limbeck.training.learned_maps import HeadMaps, make_learned_map
from tests.models.tiny import tiny_config


def shape(family="bert", **changes):
    return shape_of(tiny_config(family, **changes))


def compose(method, student, teacher, task="text", **options):
    chosen = METHODS[method]
    return chosen.compose(chosen.options(**options), Pairing(student, teacher, task))


STUDENT = shape(layers=2, hidden=24, heads=4, ffn=48)
WIDE = shape(layers=2, ffn=48)
TEACHER = shape()
NEEDS_EQUAL_WIDTHS = ("distilbert", "bert_pkd")


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_composes_with_its_defaults(name):
    method = METHODS[name]
    assert method.name == name
    terms = compose(name, WIDE if name in NEEDS_EQUAL_WIDTHS else STUDENT, TEACHER)
    assert terms
    assert len({term.name for term in terms}) == len(terms)
    for term in terms:
        assert term.objective in OBJECTIVES
        objective = OBJECTIVES[term.objective]
        if not objective.takes_layers:
            assert len(term.student) == objective.student_streams
            assert len(term.teacher) == (objective.student_streams if objective.takes_teacher else 0)
        assert term.weight > 0
    for field in method.options.model_fields.values():
        assert field.description
    with pytest.raises(ValidationError):
        method.options(no_such_option=1)


def test_minilmv2_takes_all_nine_pairs_with_weights():
    terms = compose("minilmv2", STUDENT, TEACHER, relations={pair: 1 + i for i, pair in enumerate(PAIRS)})
    assert len(terms) == 9
    assert [term.weight for term in terms] == list(range(1, 10))
    key_value = next(term for term in terms if term.name == "key_value")
    assert [str(key) for key in key_value.student] == ["key@2", "value@2"]
    assert [str(key) for key in key_value.teacher] == ["key@4", "value@4"]


@pytest.mark.parametrize(
    ("teacher", "hidden", "heads"),
    [("base", 384, 48), ("base", 768, 48), ("large", 768, 64), ("large", 384, 64), ("base", 312, 24), ("base", 36, 12)],
)
def test_relation_heads_are_the_papers_or_lower(teacher, hidden, heads):
    width = {"base": 768, "large": 1024}[teacher]
    found = compose(
        "minilmv2",
        shape(layers=2, hidden=hidden, heads=12 if hidden % 12 == 0 else 1, ffn=8),
        shape(layers=12, hidden=width, heads=width // 64, ffn=8),
    )
    assert found[0].options["heads"] == heads


@pytest.mark.parametrize(
    ("family", "layers", "expected"),
    [("bert", 24, 21), ("roberta", 24, 19), ("xlm-roberta", 24, 19), ("bert", 12, 12), ("electra", 24, 24)],
)
def test_the_teacher_layer_is_the_papers(family, layers, expected):
    assert resolve_layer("auto", shape(family, layers=layers), "teacher") == expected


def test_layers_count_from_the_end_too():
    assert resolve_layer(-1, TEACHER, "teacher") == 4
    assert resolve_layer(-2, TEACHER, "teacher") == 3
    for wrong in (0, 5, -5):
        with pytest.raises(LimbeckError, match="4 layers"):
            resolve_layer(wrong, TEACHER, "teacher")


def test_grouped_queries_have_narrower_keys():
    grouped = shape("llama")
    assert stream_width(grouped, "query") == grouped.heads * grouped.head_size
    assert stream_width(grouped, "key") == grouped.key_value_heads * grouped.head_size


def test_sentence_embedding_learns_a_map_for_each_term_where_widths_differ():
    terms = compose("sentence_embedding", STUDENT, TEACHER, layer_mapping={1: 2})
    assert [term.name for term in terms] == ["pooled_cosine", "hidden_mse", "hidden_mse_1"]
    assert all(term.learned_map is not None for term in terms)
    same = compose("sentence_embedding", shape(layers=2), TEACHER, sample_relation_weight=1)
    assert all(term.learned_map is None for term in same)
    assert [term.batch_coupled for term in same] == [False, False, True]
    with pytest.raises(LimbeckError, match="weights of 0"):
        compose("sentence_embedding", STUDENT, TEACHER, pooled_weight=0, hidden_weight=0)
    with pytest.raises(LimbeckError, match="4 layers"):
        compose("sentence_embedding", STUDENT, TEACHER, layer_mapping={1: 9})


def test_direct_minilm_with_one_head_has_a_map_of_heads_too():
    for term in compose("direct_minilm", STUDENT, TEACHER, relation_heads=1):
        assert isinstance(make_learned_map(term.learned_map), HeadMaps)
        assert make_learned_map(term.learned_map).weight.shape == (1, 24, 48)
