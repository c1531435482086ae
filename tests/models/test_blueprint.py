"""Students' shapes as they are written, the configurations derived from a teacher's, and the students built of them."""

from pathlib import Path

import pytest
import torch
import yaml

from limbeck.models.blueprint import parse_blueprint, presets
from limbeck.models.families import block_list, family_of, shape_of
from limbeck.models.heads import model_class
from limbeck.models.students import build_student, student_config
from tests.support import models as tiny

EXPECTED = yaml.safe_load(Path(__file__).with_name("expected.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("source", "numbers"), EXPECTED["shapes"])
def test_strings_presets_and_mappings(source, numbers):
    blueprint = parse_blueprint(source)
    assert list(blueprint.model_dump().values()) == numbers
    assert parse_blueprint(blueprint) is blueprint


def test_every_preset_has_numbers_checked_above_and_a_source():
    assert set(presets) <= {source for source, _ in EXPECTED["shapes"] if isinstance(source, str)}
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


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_a_student_of_every_family_at_a_new_depth_and_width_runs(family):
    teacher = tiny.tiny_config(family)
    before = teacher.to_dict()
    assert shape_of(student_config(parse_blueprint("6x384"), teacher)).ffn == 1536, "never the teacher's"
    config = student_config(parse_blueprint({"layers": 2, "hidden": 32, "heads": 2, "ffn": 40}), teacher)
    assert teacher.to_dict() == before
    ours, theirs = shape_of(config), shape_of(teacher)
    assert (ours.layers, ours.hidden, ours.heads, ours.head_size, ours.ffn) == (2, 32, 2, 16, 40)
    assert (ours.vocabulary, ours.positions) == (theirs.vocabulary, theirs.positions)
    assert config.architectures is None and not config.name_or_path
    student = build_student(config, seed=0)
    hidden = student(**tiny.tiny_batch(family), output_hidden_states=True).hidden_states
    assert (len(hidden), hidden[-1].shape, student.training) == (3, (3, 12, 32), False)


@pytest.mark.parametrize("family", tiny.ALL_FAMILIES)
def test_only_the_shape_changes(family):
    teacher = tiny.tiny_config(family)
    config = student_config(tiny.blueprint_like(shape_of(teacher), 2), teacher)
    ours, theirs = config.to_dict(), teacher.to_dict()
    changed = {name for name in theirs if ours.get(name) != theirs[name]}
    layers = family_of(teacher).fields.layers
    assert changed <= {layers, "layer_types", "architectures", "dtype", "max_window_layers"}


@pytest.mark.parametrize("case", EXPECTED["students"])
def test_fields_of_a_students_configuration(case):
    family, changes, fields, expected, *source_layers = case
    teacher = tiny.tiny_config(family, **changes)
    config = student_config(parse_blueprint(fields), teacher, source_layers=source_layers[0] if source_layers else None)
    assert {name: getattr(config, name) for name in expected} == expected
    assert shape_of(config).vocabulary == shape_of(teacher).vocabulary


def test_a_seed_decides_every_weight_and_nothing_else_changes():
    config = tiny.tiny_config("bert")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = (build_student(config, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["encoder.layer.0.output.dense.weight"], other["encoder.layer.0.output.dense.weight"])


def test_a_student_is_float32_without_a_pooler_and_with_fast_attention_whatever_the_teacher():
    teacher = tiny.tiny_model("bert")
    teacher.set_attn_implementation("eager")
    teacher.config.dtype = torch.bfloat16
    student = build_student(student_config(parse_blueprint("1x24"), teacher.config), seed=0)
    assert {parameter.dtype for parameter in student.parameters()} == {torch.float32}
    assert not any("pooler" in name for name, _ in student.named_parameters())
    assert student.config._attn_implementation == "sdpa"
