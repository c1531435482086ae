"""Which shapes can be searched, what they count, and which sizes are refused."""

import dataclasses

import pytest

from limbeck.errors import RecipeError
from limbeck.evaluation import count_parameters
from limbeck.models.blueprint import build_student
from limbeck.recipe.load import load_recipe
from limbeck.search.shape_space import (
    ShapeLimits,
    ShapePoint,
    ShapeSizes,
    check_some_small_enough,
    fastest_guess,
    parse_count,
    refuse_latency,
    refuse_parameters,
    shape_space,
    with_shape,
    written_count,
)
from tests.support.shape_search import recipe_data, write_teacher

SIZES = ShapeSizes(layers=(1, 2, 3), hidden=(8, 12, 16), heads=(2, 4), ffn=(1, 2))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "some.txt").write_text("Some text.\n", encoding="utf-8")
    return load_recipe(recipe_data(write_teacher(folder), folder / "some.txt"))


def sizes(**changes):
    return dataclasses.replace(SIZES, **changes)


def test_the_space_is_the_product_of_what_can_be_trained(recipe):
    space = shape_space(recipe, sizes(heads=(2, 3, 4)))
    everything = {ShapePoint(s, h, a, f) for s in (1, 2, 3) for h in (8, 12, 16) for a in (2, 3, 4) for f in (1, 2)}
    legal = {point for point in everything if point.hidden % point.heads == 0}
    assert set(space.shapes) == legal and set(space.impossible) == everything - legal
    assert "3 heads do not divide" in space.impossible[ShapePoint(1, 8, 3, 1)]


def test_a_shape_is_the_recipe_with_that_student(recipe):
    shape = shape_space(recipe, SIZES).shapes[ShapePoint(3, 12, 4, 2)]
    found = shape.plan.student
    assert (found.layers, found.hidden, found.heads, found.ffn) == (3, 12, 4, 24)
    counts = count_parameters(build_student(shape.plan.student_config, seed=0))
    assert shape.parameters == counts.embedding + counts.transformer
    changed = shape.plan.recipe.model_dump() | {"student": recipe.student.model_dump()}
    assert changed == recipe.model_dump()


def test_ffn_widths_are_rounded_and_factorised_embeddings_stay(recipe):
    assert ShapePoint(1, 384, 12, 8 / 3).ffn_width == 1024
    factorised = load_recipe(recipe, ["student.shape={layers: 2, hidden: 8, heads: 2, embedding: 4}"])
    assert with_shape(factorised, ShapePoint(1, 12, 2, 2)).student.shape.embedding == 4
    assert with_shape(recipe, ShapePoint(1, 12, 2, 2)).student.shape.embedding is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": (2, 5)}, "--heads 5 is in no shape that can be trained: 5 heads do not divide"),
        ({"hidden": (8, 9)}, "--hidden 9 is in no shape that can be trained: 2 heads do not divide"),
        ({"layers": (2, 4)}, "--layers 4 is in no shape that can be trained: stages.0.method: mapping 'last'"),
        ({"layers": ()}, "--layers lists no size"),
        ({"ffn": (2, 2.0)}, "--ffn lists 2 twice"),
    ],
    ids=str,
)
def test_sizes_of_no_shape_are_refused(recipe, changes, message):
    with pytest.raises(RecipeError, match=message):
        shape_space(recipe, sizes(**changes))


def test_a_student_that_starts_from_a_checkpoint_has_one_shape(recipe):
    with pytest.raises(RecipeError, match=r"student\.initialise\.checkpoint is a model of one shape"):
        shape_space(load_recipe(recipe, ["student.initialise.checkpoint=somewhere"]), SIZES)


def test_a_depth_that_only_some_shapes_may_have_leaves_the_others_out(recipe):
    listed = load_recipe(recipe, ["student.initialise.layers=[1, 3]"])
    space = shape_space(listed, sizes(layers=(2,)))
    assert {point.layers for point in space.shapes} == {2}
    with pytest.raises(RecipeError, match="--layers 1 is in no shape"):
        shape_space(listed, SIZES)


@pytest.mark.parametrize(
    ("text", "count"), [("30M", 30_000_000), ("1.5b", 1_500_000_000), (" 250 k", 250_000), ("1234", 1234)]
)
def test_counts_are_read_with_their_letters(text, count):
    assert parse_count("--max-parameters", text) == count


@pytest.mark.parametrize("text", ["", "M", "-3M", "0", "30 million", "1e6", "nan"])
def test_other_counts_are_refused(text):
    with pytest.raises(RecipeError, match="--max-parameters '.*' is no number of parameters"):
        parse_count("--max-parameters", text)


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999"), (1000, "1.00k"), (23_400_000, "23.4M"), (109_482_240, "109M"), (10**9, "1.00B")]
)
def test_counts_are_written_as_they_are_read(count, text):
    assert written_count(count) == text
    assert parse_count("--max-parameters", text) == pytest.approx(count, rel=0.006)


def test_limits_refuse_what_is_beyond_them_and_nothing_else(recipe):
    shape = shape_space(recipe, SIZES).shapes[ShapePoint(2, 12, 2, 1)]
    assert refuse_parameters(ShapeLimits(), shape) is None and refuse_latency(ShapeLimits(), 9.0) is None
    assert refuse_parameters(ShapeLimits(parameters=shape.parameters), shape) is None
    reason = refuse_parameters(ShapeLimits(parameters=shape.parameters - 1), shape)
    assert reason == f"{shape.parameters:,} parameters, {shape.parameters - 1:,} are the limit"
    assert refuse_latency(ShapeLimits(latency_share=0.5), 0.5) is None
    assert refuse_latency(ShapeLimits(latency_share=0.5), 0.51) == "0.510 of the teacher's latency, 0.5 is the limit"


def test_a_limit_of_parameters_that_no_shape_meets_names_the_smallest(recipe):
    shapes = shape_space(recipe, SIZES).shapes
    smallest = min(shape.parameters for shape in shapes.values())
    check_some_small_enough(ShapeLimits(parameters=smallest), shapes.values())
    with pytest.raises(RecipeError, match=f"No shape has at most 100 parameters: the smallest, 1x8, .*{smallest:,}"):
        check_some_small_enough(ShapeLimits(parameters=100), shapes.values())
    assert fastest_guess(shapes.values()).point == ShapePoint(1, 8, 2, 1)
