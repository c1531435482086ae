"""Initialising a student that is narrower than its teacher: projections, head boundaries, neurons."""

import math

import pytest
import torch

from limbeck.errors import ModelError
from limbeck.models.blueprint import build_student, student_config
from limbeck.models.families import blocks, families, shape_of
from limbeck.models.initialise import initialise_student
from limbeck.models.narrowing import head_rows, principal_directions, strongest
from tests.support import models as tiny

WITH_ROLES = [name for name, family in families.items() if family.roles is not None]


def _narrow(teacher, strategy="last", **changes):
    blueprint = tiny.blueprint_like(shape_of(teacher.config), 2).model_copy(update=changes)
    student = build_student(student_config(blueprint, teacher.config), seed=9)
    return student, initialise_student(student, teacher, layers=strategy, seed=3)


# Principal directions


def test_directions_are_orthonormal_ordered_and_the_svds():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(200, 12, generator=generator) * torch.arange(1, 13) + 5.0
    found = principal_directions(rows, 5)
    assert found.basis.shape == (12, 5)
    torch.testing.assert_close(found.basis.T @ found.basis, torch.eye(5, dtype=torch.float64))
    centred = (rows - rows.mean(0)).double()
    _, values, right = torch.linalg.svd(centred, full_matrices=False)
    torch.testing.assert_close((right[:5] @ found.basis).abs(), torch.eye(5, dtype=torch.float64), atol=1e-6, rtol=0)
    assert found.explained == pytest.approx(float(values[:5].square().sum() / values.square().sum()))
    largest = found.basis.gather(0, found.basis.abs().argmax(0, keepdim=True))
    assert (largest > 0).all()


def test_rows_in_chunks_give_the_same_directions(monkeypatch):
    rows = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
    whole = principal_directions(rows, 3).basis
    monkeypatch.setattr("limbeck.models.narrowing._CHUNK", 7)
    torch.testing.assert_close(principal_directions(rows, 3).basis, whole)


def test_directions_through_a_map_are_those_of_the_mapped_rows():
    generator = torch.Generator().manual_seed(2)
    rows, through = torch.randn(100, 4, generator=generator), torch.randn(9, 4, generator=generator)
    expected = principal_directions(rows @ through.T, 3)
    found = principal_directions(rows, 3, through=through)
    torch.testing.assert_close(found.basis, expected.basis, atol=1e-5, rtol=0)
    assert principal_directions(torch.ones(5, 4), 2).explained == 1.0


# Embeddings


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert", "gpt2"])
def test_tables_are_projected_onto_one_basis_and_norms_reset(family):
    teacher = tiny.tiny_model(family)
    student, report = _narrow(teacher, "random", hidden=24)
    words = teacher.get_input_embeddings().weight
    found = principal_directions(words, 24)
    given = dict(teacher.named_parameters())
    tables = [name for name, p in student.named_parameters() if name in report.projected]
    assert any("position" in name or "wpe" in name for name in tables) == (family != "modernbert")
    for name in tables:
        expected = given[name].double() @ found.basis
        torch.testing.assert_close(student.get_parameter(name).double(), expected, atol=1e-5, rtol=0)
    assert all("norm" in name.lower() for name in report.reset)
    assert report.explained == pytest.approx(found.explained)


def test_projecting_keeps_similarities_of_words_that_lie_in_the_span():
    teacher = tiny.tiny_model("bert")
    words = teacher.get_input_embeddings().weight
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        words.copy_(torch.randn(len(words), 10, generator=generator) @ torch.randn(10, 48, generator=generator))
        words -= words.mean(0)
    student, report = _narrow(teacher, "random", hidden=24)
    ours = student.get_input_embeddings().weight
    torch.testing.assert_close(ours @ ours.T, words @ words.T, atol=1e-2, rtol=1e-4)
    assert report.explained == pytest.approx(1.0)


def test_a_factorised_student_gives_the_teachers_embedding_output_where_it_can():
    """With tables inside E directions and features of mean zero, ELECTRA's E-wide norm and map lose "
    "nothing."""
    teacher = tiny.tiny_model("bert")
    generator = torch.Generator().manual_seed(0)
    # An even basis orthogonal to the all-ones vector: both norms then take off a mean of zero.
    square = torch.randn(48, 48, generator=generator)
    square[:, 0] = 1.0
    span = torch.linalg.qr(square).Q[:, 1:17]
    embeddings = teacher.embeddings
    with torch.no_grad():
        for table in (embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings):
            table.weight.copy_(table.weight @ span @ span.T)
    blueprint = tiny.blueprint_like(shape_of(teacher.config), 4).model_copy(update={"embedding": 16})
    student = build_student(student_config(blueprint, teacher.config), seed=0)
    with torch.no_grad():  # the student's norm takes off a mean in its own 16 coordinates; leave the others as they are
        report = initialise_student(student, teacher, layers="first", seed=0)
        ids = tiny.tiny_batch("bert", rows=1)["input_ids"]
        narrow = student.embeddings(ids)
        raw = (
            embeddings.word_embeddings(ids)
            + embeddings.position_embeddings.weight[:12]
            + embeddings.token_type_embeddings.weight[0]
        )
        basis = principal_directions(embeddings.word_embeddings.weight, 16).basis.float()
        torch.testing.assert_close(
            narrow, torch.nn.functional.layer_norm(raw @ basis, (16,), eps=1e-12), atol=1e-4, rtol=0
        )
        unnormed = raw @ basis / (raw @ basis).norm(dim=-1, keepdim=True) * math.sqrt(16)
        torch.testing.assert_close(student.embeddings_project(unnormed), embeddings(ids), atol=1e-3, rtol=0)
    assert report.embeddings == "projected"
    for ours, theirs in zip(blocks(student), blocks(teacher), strict=True):
        assert torch.equal(ours.output.dense.weight, theirs.output.dense.weight)


def test_factorised_narrow_and_narrow_hidden_use_nested_bases():
    teacher = tiny.tiny_model("bert")
    student, report = _narrow(teacher, "first", hidden=24, embedding=16, ffn=50)
    norm = teacher.embeddings.LayerNorm
    words = teacher.get_input_embeddings().weight
    wide, narrow = principal_directions(words, 24).basis, principal_directions(words, 16).basis
    torch.testing.assert_close(wide[:, :16], narrow)
    expected = wide.T @ (norm.weight.double()[:, None] * narrow) * math.sqrt(48 / 16)
    torch.testing.assert_close(student.embeddings_project.weight.double(), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(student.embeddings_project.bias.double(), wide.T @ norm.bias.double(), atol=1e-5, rtol=0)
    assert "embeddings_project.weight" in report.projected


@pytest.mark.parametrize("family", ["albert", "electra"])
def test_factorised_teachers_keep_their_map_seen_through_the_bases(family):
    teacher = tiny.tiny_model(family)
    student, _ = _narrow(teacher, "random", hidden=12 if family == "electra" else 36, embedding=8)
    path = str(families[family].embedding_projection)
    theirs = teacher.get_submodule(path)
    words = teacher.get_input_embeddings().weight
    hidden = principal_directions(words, student.config.hidden_size, through=theirs.weight).basis
    narrow = principal_directions(words, 8).basis
    expected = hidden.T @ theirs.weight.double() @ narrow
    torch.testing.assert_close(student.get_submodule(path).weight.double(), expected, atol=1e-5, rtol=0)


def test_a_plain_student_of_a_factorised_teacher_starts_random():
    teacher = tiny.tiny_model("electra")
    _, report = _narrow(teacher, "random", hidden=24, embedding=24)
    assert report.embeddings == "random"


# Blocks


@pytest.mark.parametrize("family", WITH_ROLES)
def test_narrow_blocks_of_every_family_with_roles_run_and_are_accounted_for(family):
    teacher = tiny.tiny_model(family)
    changes = {"hidden": 20, "embedding": 8} if family == "electra" else {"hidden": 24}
    student, report = _narrow(teacher, [4, 2], heads=2, ffn=30, **changes)
    assert student(**tiny.tiny_batch(family)).last_hidden_state.isfinite().all()
    named = [*report.copied, *report.projected, *report.reset, *report.random]
    assert sorted(named) == sorted(student.state_dict())
    assert not report.random


def test_maps_follow_the_basis_and_keep_whole_heads():
    teacher = tiny.tiny_model("bert")
    student, _ = _narrow(teacher, [3, 3], hidden=24, heads=2, ffn=30)
    basis = principal_directions(teacher.get_input_embeddings().weight, 24).basis
    ours, theirs = blocks(student)[0], blocks(teacher)[2]
    attention = theirs.attention
    value, out = attention.self.value.weight.double(), attention.output.dense.weight.double()
    units = (value.square().sum(1) * out.square().sum(0)).tolist()
    strength = [sum(units[head]) for head in _heads(4, 12)]
    kept = sorted(sorted(range(4), key=lambda head: -strength[head])[:2])
    rows = [head * 12 + i for head in kept for i in range(12)]
    for name in ("query", "key", "value"):
        source, target = getattr(attention.self, name), getattr(ours.attention.self, name)
        _close(target.weight, source.weight.double()[rows] @ basis)
        _close(target.bias, source.bias.double()[rows])
    _close(ours.attention.output.dense.weight, basis.T @ out[:, rows])
    _close(ours.attention.output.dense.bias, basis.T @ attention.output.dense.bias.double())
    first, second = theirs.intermediate.dense.weight.double(), theirs.output.dense.weight.double()
    neurons = (first.square().sum(1) * second.square().sum(0)).topk(30).indices.sort().values
    _close(ours.intermediate.dense.weight, first[neurons] @ basis)
    _close(ours.output.dense.weight, basis.T @ second[:, neurons])
    assert torch.equal(ours.output.LayerNorm.weight, torch.ones(24))
    assert torch.equal(ours.attention.output.LayerNorm.bias, torch.zeros(24))


def _heads(count, size):
    return [slice(head * size, (head + 1) * size) for head in range(count)]


def _close(found, expected):
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)


def test_the_head_boundary_is_respected_when_heads_are_narrower():
    """Each student head holds the leading dimensions of one teacher head: marks show where each row came "
    "from."""
    teacher = tiny.tiny_model("bert")
    with torch.no_grad():
        for block in blocks(teacher):
            block.attention.self.query.bias.copy_(torch.arange(48.0))
    student, _ = _narrow(teacher, "first", hidden=24)
    marks = blocks(student)[0].attention.self.query.bias.view(4, 6)
    assert marks.tolist() == [[12.0 * head + i for i in range(6)] for head in range(4)]


def test_fewer_neurons_at_equal_width_copy_everything_else_exactly():
    teacher = tiny.tiny_model("bert")
    student, report = _narrow(teacher, "first", ffn=40)
    ours, theirs = blocks(student)[0].state_dict(), blocks(teacher)[0].state_dict()
    for name, tensor in ours.items():
        if not name.startswith(("intermediate", "output.dense.weight")):
            assert torch.equal(tensor, theirs[name]), name
    rows = {tuple(row.tolist()) for row in theirs["intermediate.dense.weight"]}
    assert all(tuple(row.tolist()) in rows for row in ours["intermediate.dense.weight"])
    assert report.embeddings == "copied"
    assert report.explained is None


def test_a_factorised_teacher_spans_too_few_directions_to_narrow_its_blocks():
    teacher = tiny.tiny_model("electra")
    with pytest.raises(ModelError, match="span only 24 directions, too few to tell which 36 of its 48 to keep"):
        _narrow(teacher, "first", hidden=36)


def test_units_are_selected_in_order():
    assert strongest(torch.tensor([1.0, 5.0, 3.0, 5.0]), 3).tolist() == [1, 2, 3]
    assert head_rows(torch.tensor([0, 2]), 4, 3).tolist() == [0, 1, 2, 8, 9, 10]
