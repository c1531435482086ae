"""Shapes searched as the comparative study searched its small students (appendix C, after KD-NAS)."""

import pytest
from rich.console import Console

from limbeck.recipe.load import load_recipe
from limbeck.recipe.plan import plan_run
from limbeck.search.architecture import search_architecture
from limbeck.search.held_out_scores import loss_batches
from limbeck.search.requests import ShapeSizes
from limbeck.search.shape_space import ShapePoint, with_shape
from limbeck.training.proxy import Proxy
from tests.support.corpora import write_text
from tests.support.equation_6 import hidden_states_loss
from tests.support.shape_search import make_request, recipe_data, write_teacher


def test_a_controller_searches_by_the_hidden_states_loss_as_printed(tmp_path):
    data = recipe_data(write_teacher(tmp_path, layers=4), write_text(tmp_path / "text", 60))
    data["student"] = {"shape": "2x8h2", "dropout": 0.0}
    data["stages"][0] |= {"method": {"name": "hidden_states", "mapping": "uniform_last"}}
    data["stages"][0]["training"] |= {"max_steps": 2}
    sizes = ShapeSizes(layers=(2,), hidden=(8,), heads=(2,), ffn=(2,))
    options = {"sizes": sizes, "trials": 1, "sampler": "kd_nas", "loss": "hidden_states"}
    record = search_architecture(make_request(data, tmp_path / "out", **options))
    [shape] = record["shapes"]
    plan = plan_run(with_shape(load_recipe(data), ShapePoint(2, 8, 2, 2)))
    proxy = Proxy(plan, console=Console(quiet=True))
    [alone] = proxy.train([plan])
    batches = loss_batches(proxy)
    thirds = [[b for n, b in enumerate(batches) if 3 * n // len(batches) == third] for third in range(3)]
    # Uniform+last of 2 and 4 layers.
    expected = hidden_states_loss(alone.student, proxy.load_teacher(), thirds, {1: [2, 3], 2: [4]})
    assert shape["loss"] == pytest.approx(expected, rel=1e-5)
    assert shape["reward"] == pytest.approx((1 - expected) * (shape["latency_share"] / 0.6) ** -0.06, rel=1e-5)
    assert (record["sampler"], record["episode"], record["loss"]["kind"]) == ("kd_nas", 1, "hidden_states")
