"""What methods come to for given shapes, and what they refuse."""

import pytest
from pydantic import ValidationError

from limbeck.errors import LimbeckError
from limbeck.methods import METHODS, Pairing
from limbeck.methods.layer_mapping import resolve_layer, stream_width
from limbeck.methods.minilmv2 import PAIRS
from limbeck.models.families import shape_of
from limbeck.objectives.registry import OBJECTIVES
from limbeck.training.module import HeadMaps, make_learned_map
from tests.support.models import tiny_config


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


TWELVE = shape(layers=12, hidden=48, heads=12, ffn=8)
FOUR = shape(layers=4, hidden=24, heads=12, ffn=8)


def layers_of(terms, kind):
    return [(t.student[0].layer, t.teacher[0].layer) for t in terms if t.student[0].kind == kind]


def test_minilm_and_its_ablations():
    plain = compose("minilm", FOUR, TWELVE)
    assert [term.name for term in plain] == ["attention", "value_relation"]
    assert {(t.objective, t.options["heads"]) for t in plain} == {("relation_kl", 12)}
    assert [str(key) for key in plain[0].student + plain[0].teacher] == ["query@4", "key@4", "query@12", "key@12"]
    assert [term.name for term in compose("minilm", FOUR, TWELVE, value_weight=0)] == ["attention"]
    vectors = compose("minilm", FOUR, TWELVE, value_transfer="vectors")[1]
    assert (vectors.objective, vectors.learned_map.inputs, vectors.learned_map.outputs) == ("hidden_mse", 24, 48)
    assert layers_of(compose("minilm", FOUR, TWELVE, mapping="uniform"), "query") == [(1, 3), (2, 6), (3, 9), (4, 12)]
    with pytest.raises(LimbeckError, match="needs the teacher's 12 heads, not 6"):
        compose("minilm", shape(layers=4, hidden=24, heads=6, ffn=8), TWELVE)


def test_elm_takes_the_papers_mappings_where_depths_are_the_papers():
    assert layers_of(compose("elm", FOUR, TWELVE), "hidden") == [(3, 5), (4, 10)]
    six = shape(layers=6, hidden=24, heads=12, ffn=8)
    assert layers_of(compose("elm", six, TWELVE), "query") == [(2, 5), (6, 10)]
    three = shape(layers=3, hidden=24, heads=12, ffn=8)
    assert layers_of(compose("elm", three, TWELVE), "hidden") == [(1, 4), (2, 8), (3, 12)]


def test_tinybert_without_attention_needs_no_equal_heads():
    other = shape(layers=4, hidden=24, heads=6, ffn=8)
    with pytest.raises(LimbeckError, match="attention_weight: 0"):
        compose("tinybert", other, TWELVE)
    terms = compose("tinybert", other, TWELVE, attention_weight=0)
    assert [term.name for term in terms] == ["embedding", "hidden_1_3", "hidden_2_6", "hidden_3_9", "hidden_4_12"]
    assert all(term.learned_map is not None for term in terms)


def test_mlkd_splits_and_ways_to_merge_heads():
    few = shape(layers=4, hidden=24, heads=3, ffn=8)
    plain = compose("mlkd_bert", few, TWELVE)
    assert [term.options["heads"] for term in plain if term.student[0].kind == "context"] == [3] * 4
    assert plain[0].options["heads"] == 1
    average = next(t for t in compose("mlkd_bert", few, TWELVE, mha_mapping="average") if t.name == "attention_1_3")
    assert (average.teacher_heads.heads, average.teacher_heads.groups, average.teacher_heads.chosen) == (12, 3, None)
    drawn = [
        next(t for t in compose("mlkd_bert", few, TWELVE, mha_mapping="random", mha_seed=seed) if t.teacher_heads)
        for seed in range(5)
    ]
    assert all(0 <= pick < 4 for term in drawn for pick in term.teacher_heads.chosen)
    assert len({term.teacher_heads.chosen for term in drawn}) > 1
    with pytest.raises(LimbeckError, match="mha_splits 5 does not divide"):
        compose("mlkd_bert", few, TWELVE, mha_splits=5)
    with pytest.raises(LimbeckError, match="mha_splits 8 does not divide that"):
        compose("mlkd_bert", few, TWELVE, mha_splits=8, mha_mapping="average")


def test_mlkd_drops_the_sample_terms_where_they_mean_nothing():
    names = {
        task: [term.name for term in compose("mlkd_bert", FOUR, TWELVE, task, stage=2)]
        for task in ("text", "classification", "regression", "question_answering")
    }
    assert names["classification"] == ["sample_relation", "sample_contrastive", "soft_label"]
    assert names["regression"] == ["sample_relation", "soft_label"]
    assert names["text"] == names["question_answering"] == ["soft_label"]
    with pytest.raises(LimbeckError, match="predicts tokens"):
        compose("mlkd_bert", FOUR, TWELVE, "question_answering", stage=2, sample_relation_weight=1)
    with pytest.raises(LimbeckError, match="needs classes"):
        compose("mlkd_bert", FOUR, TWELVE, "regression", stage=2, sample_contrastive_weight=1)
    contrast = compose("mlkd_bert", FOUR, TWELVE, "classification", stage=2)[1]
    assert contrast.normalise
    assert contrast.options == {"temperature": 0.07}


def test_pkd_skip_and_last_leave_out_the_last_layer():
    six, twelve = shape(layers=6), shape(layers=12)
    skip, last = (compose("bert_pkd", six, twelve, "classification", mapping=name) for name in ("uniform", "last"))
    assert layers_of(skip, "cls") == [(i, 2 * i) for i in range(1, 6)]
    assert layers_of(last, "cls") == [(i, 6 + i) for i in range(1, 6)]
    assert [(t.objective, t.weight) for t in skip[-2:]] == [("soft_label_kl", 0.5), ("hard_label_ce", 0.5)]


def test_scores_are_taught_as_the_task_has_them():
    objectives = {
        task: compose("output_distribution", FOUR, TWELVE, task)[0]
        for task in ("text", "classification", "regression", "question_answering")
    }
    assert {task: (term.objective, term.unit) for task, term in objectives.items()} == {
        "text": ("soft_label_kl", "label"),
        "classification": ("soft_label_kl", "sample"),
        "regression": ("soft_label_mse", "sample"),
        "question_answering": ("soft_label_kl", "sample"),
    }
    assert compose("output_distribution", FOUR, TWELVE, positions="all")[0].unit == "token"


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("output_distribution", {"temperature": 0}),
        ("distilbert", {"soft_label_weight": -1}),
        ("bert_pkd", {"soft_label_share": 1.5}),
        ("mlkd_bert", {"stage": 3}),
        ("mlkd_bert", {"contrastive_temperature": -0.1}),
        ("bert_emd", {"cost_attention": 0}),
        ("minilm", {"value_transfer": "vector"}),
    ],
)
def test_options_out_of_range_are_refused(method, options):
    with pytest.raises(ValidationError):
        METHODS[method].options(**options)


def test_direct_minilm_refuses_heads_that_divide_nothing():
    with pytest.raises(LimbeckError, match="relation_heads 7 does not divide the width 24 of the student's query"):
        compose("direct_minilm", FOUR, TWELVE, relation_heads=7)
