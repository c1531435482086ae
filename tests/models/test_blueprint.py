import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models.blueprint import build_student, parse_blueprint, presets, student_config
from limbeck.models.families import block_list, family_of, shape_of
from limbeck.models.loading import model_class
from tests.support import models as tiny


def _numbers(blueprint):
    return (blueprint.layers, blueprint.hidden, blueprint.heads, blueprint.ffn, blueprint.embedding)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("6x768", (6, 768, 12, 3072, None)),
        ("6x384", (6, 384, 12, 1536, None)),
        (" 4X384 ", (4, 384, 12, 1536, None)),
        ("3×384", (3, 384, 12, 1536, None)),
        ("12x384", (12, 384, 12, 1536, None)),
        ("24x1024", (24, 1024, 16, 4096, None)),
        ("2x128", (2, 128, 2, 512, None)),
        ("6x384h6", (6, 384, 6, 1536, None)),
        # The numbers as the papers print them.
        ("minilm-6x384", (6, 384, 12, 1536, None)),
        ("minilm-4x384", (4, 384, 12, 1536, None)),
        ("minilm-3x384", (3, 384, 12, 1536, None)),
        ("minilm-12x384", (12, 384, 12, 1536, None)),
        ("minilm-6x768", (6, 768, 12, 3072, None)),
        ("minilmv2-12x384-e128", (12, 384, 12, 1536, 128)),
        ("tinybert-4x312", (4, 312, 12, 1200, None)),
        ("nas-4x576", (4, 576, 12, 768, None)),
        ("nas-3x384", (3, 384, 12, 1024, None)),
    ],
)
def test_strings_and_presets(text, numbers):
    assert _numbers(parse_blueprint(text)) == numbers


def test_every_preset_has_numbers_checked_above_and_a_source():
    checked = test_strings_and_presets.pytestmark[0].args[1]
    assert set(presets) <= {text for text, _ in checked}
    assert all(preset.source.endswith(".") for _, preset in presets.items())


def test_transformer_parameters_match_the_ones_that_minilm_prints():
    """MiniLM, table 4: millions of parameters in the embeddings and in the Transformer blocks."""
    teacher = tiny.tiny_config("bert", vocab_size=30522, max_position_embeddings=512)
    printed = {"3x384": (11.7, 5.3), "4x384": (11.7, 7.1), "6x384": (11.7, 10.6), "12x384": (11.7, 21.3)}
    for text, (embedding, transformer) in (printed | {"6x768": (23.4, 42.5)}).items():
        config = student_config(parse_blueprint(text), teacher)
        with torch.device("meta"):
            model = model_class(config)(config, add_pooling_layer=False)
        words = model.get_input_embeddings().weight.numel()
        blocks = sum(parameter.numel() for parameter in block_list(model).parameters())
        assert (words / 1e6, blocks / 1e6) == pytest.approx((embedding, transformer), abs=0.06)


def test_mappings_fill_in_what_is_left_out():
    assert _numbers(parse_blueprint({"layers": 3, "hidden": 384})) == (3, 384, 12, 1536, None)
    full = parse_blueprint({"layers": 3, "hidden": 50, "heads": 5, "ffn": 70, "embedding": 20, "dropout": 0.0})
    assert (*_numbers(full), full.dropout) == (3, 50, 5, 70, 20, 0.0)
    assert parse_blueprint(full) is full


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("6x", r"Cannot read the student '6x': write LAYERSxHIDDEN like '6x384'"),
        ("x384", r"Cannot read the student 'x384'"),
        ("6*384", r"Cannot read the student '6\*384'"),
        ("", r"Cannot read the student ''"),
        ("tinybert-4x321", r"Did you mean 'tinybert-4x312'\? Known: .*nas-3x384"),
        ("0x384", r"The student's layers cannot be 0: .*greater than or equal to 1"),
        ("6x0", r"The student's hidden cannot be 0"),
        ("384x6", r"layers come first: '6x384'\?"),
        ("6x9999999", r"The student's hidden cannot be 9999999: .*less than or equal to"),
        ("6x384h7", r"7 heads do not divide"),
        ("6x384h0", r"heads"),
        ("300x384", r"The student's layers cannot be 300"),
        ("6x100", r"Neither 12 heads nor heads of 64 divide hidden 100; .*heads: 1\}"),
        ({"layers": 6}, r"The student lacks 'hidden'"),
        ({"hidden": 384}, r"The student lacks 'layers'"),
        ({"layers": 6, "hiden": 384}, r"A student has no field 'hiden'\. Did you mean 'hidden'\?"),
        ({"layers": 6, "hidden": 384, "heads": 7}, r"7 heads do not divide .* width 384; 6 would"),
        ({"layers": 6, "hidden": "384"}, r"The student's hidden cannot be '384'"),
        ({"layers": 6.5, "hidden": 384}, r"The student's layers cannot be 6\.5"),
        ({"layers": True, "hidden": 384}, r"The student's layers cannot be True"),
        ({"layers": 6, "hidden": 384, "ffn": -1}, r"The student's ffn cannot be -1"),
        ({"layers": 6, "hidden": 384, "dropout": 1.0}, r"The student's dropout cannot be 1\.0"),
    ],
)
def test_bad_students_are_refused_in_one_clear_line(source, message):
    with pytest.raises(ModelError, match=message) as caught:
        parse_blueprint(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_a_student_of_every_family_at_a_new_depth_and_width_runs(family):
    teacher = tiny.tiny_config(family)
    before = teacher.to_dict()
    assert shape_of(student_config(parse_blueprint("6x384"), teacher)).ffn == 1536, "never the teacher's"
    blueprint = parse_blueprint({"layers": 2, "hidden": 32, "heads": 2, "ffn": 40})
    config = student_config(blueprint, teacher)
    assert teacher.to_dict() == before
    ours, theirs = shape_of(config), shape_of(teacher)
    assert (ours.layers, ours.hidden, ours.heads, ours.head_size, ours.ffn) == (2, 32, 2, 16, 40)
    assert (ours.vocabulary, ours.positions) == (theirs.vocabulary, theirs.positions)
    assert config.architectures is None
    assert not config.name_or_path
    student = build_student(config, seed=0)
    hidden = student(**tiny.tiny_batch(family), output_hidden_states=True).hidden_states
    assert len(hidden) == 3
    assert hidden[-1].shape == (3, 12, 32)
    assert not student.training


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_only_the_shape_changes(family):
    teacher = tiny.tiny_config(family)
    config = student_config(tiny.blueprint_like(shape_of(teacher), 2), teacher)
    fields = family_of(teacher).fields
    ours, theirs = config.to_dict(), teacher.to_dict()
    changed = {name for name in theirs if ours.get(name) != theirs[name]}
    assert changed <= {fields.layers, "layer_types", "architectures", "dtype", "max_window_layers"}


def test_grouped_query_heads_keep_the_teachers_ratio():
    teacher = tiny.tiny_config("llama", heads=4, num_key_value_heads=2)
    config = student_config(parse_blueprint({"layers": 2, "hidden": 48, "heads": 6}), teacher)
    assert (shape_of(config).key_value_heads, shape_of(config).head_size) == (3, 8)
    odd = student_config(parse_blueprint({"layers": 2, "hidden": 48, "heads": 3}), teacher)
    assert shape_of(odd).key_value_heads == 3


def test_an_explicit_head_width_of_the_teacher_survives_where_the_attention_is_the_same():
    teacher = tiny.tiny_config("qwen3", head_dim=20)
    assert shape_of(student_config(tiny.blueprint_like(shape_of(teacher), 2), teacher)).head_size == 20


def test_modernbert_keeps_its_pattern_of_global_layers():
    teacher = tiny.tiny_config("modernbert", layers=7)
    kinds = teacher.layer_types
    deep = student_config(tiny.blueprint_like(shape_of(teacher), 9), teacher)
    assert deep.layer_types == [kinds[i % 3] for i in range(9)]
    anew = student_config(tiny.blueprint_like(shape_of(teacher), 3), teacher, source_layers=[])
    assert anew.layer_types == kinds[:3]
    picked = student_config(tiny.blueprint_like(shape_of(teacher), 3), teacher, source_layers=[2, 4, 7])
    assert picked.layer_types == [kinds[1], kinds[3], kinds[6]]


def test_dropout_is_the_teachers_unless_asked():
    teacher = tiny.tiny_config("distilbert", dropout=0.3)
    fields = {"layers": 2, "hidden": 48, "heads": 4}
    assert student_config(parse_blueprint(fields), teacher).dropout == 0.3
    without = student_config(parse_blueprint(fields | {"dropout": 0.0}), teacher)
    assert (without.dropout, without.attention_dropout) == (0.0, 0.0)


def test_a_factorised_bert_is_an_electra():
    teacher = tiny.tiny_config("bert", hidden_dropout_prob=0.2)
    blueprint = parse_blueprint({"layers": 2, "hidden": 48, "heads": 4, "embedding": 16})
    assert student_config(blueprint.model_copy(update={"embedding": 48}), teacher).model_type == "bert"
    config = student_config(blueprint, teacher)
    assert config.model_type == "electra"
    assert (shape_of(config).embedding, shape_of(config).hidden) == (16, 48)
    assert config.hidden_dropout_prob == 0.2
    assert shape_of(config).vocabulary == shape_of(teacher).vocabulary
    student = build_student(config, seed=0)
    assert student(**tiny.tiny_batch("bert")).last_hidden_state.shape == (3, 12, 48)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "ernie", "llama"])
def test_factorised_embeddings_elsewhere_are_refused(family):
    blueprint = parse_blueprint({"layers": 2, "hidden": 48, "heads": 4, "embedding": 16})
    with pytest.raises(ModelError, match=rf"A {family} student cannot have factorised embeddings .*electra"):
        student_config(blueprint, tiny.tiny_config(family))


def test_factorised_families_keep_or_change_their_embedding_width():
    teacher = tiny.tiny_config("albert")
    plain = parse_blueprint({"layers": 2, "hidden": 48, "heads": 4})
    assert shape_of(student_config(plain, teacher)).embedding == tiny.EMBEDDING
    narrow = plain.model_copy(update={"embedding": 8})
    assert shape_of(student_config(narrow, teacher)).embedding == 8
    wide = tiny.tiny_config("electra", embedding_size=48)
    half = parse_blueprint({"layers": 2, "hidden": 24, "heads": 4})
    assert shape_of(student_config(half, wide)).embedding == 24


def test_a_seed_decides_every_weight_and_nothing_else_changes():
    config = tiny.tiny_config("bert")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (build_student(config, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.layer.0.output.dense.weight"], other["encoder.layer.0.output.dense.weight"])


def test_a_student_is_float32_and_has_no_pooler_whatever_the_teacher():
    teacher = tiny.tiny_config("bert")
    teacher.dtype = torch.bfloat16
    student = build_student(student_config(parse_blueprint("1x24"), teacher), seed=0)
    assert {parameter.dtype for parameter in student.parameters()} == {torch.float32}
    assert not any("pooler" in name for name, _ in student.named_parameters())


def test_a_tapped_teacher_does_not_pass_on_its_attention():
    teacher = tiny.tiny_model("bert")
    teacher.set_attn_implementation("eager")
    student = build_student(student_config(parse_blueprint("1x24"), teacher.config), seed=0)
    assert student.config._attn_implementation == "sdpa"


def test_heads_that_do_not_divide_are_refused_when_built():
    with pytest.raises(ModelError, match="5 heads do not divide the hidden width 48"):
        build_student(tiny.tiny_config("bert", heads=5), seed=0)
