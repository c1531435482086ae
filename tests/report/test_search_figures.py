"""The figures of searches show the numbers of their records."""

import pytest

from limbeck.core.studies import Search
from limbeck.report.plot_drawing import svg_of
from limbeck.report.search import distribution_figures, search_pictures
from tests.support.reports import layer_search_record, mapping_search_record, shape_search_record


def series_of(plot):
    return {series.label: series for series in plot.series}


def test_the_evolution_has_every_generation_and_member():
    figure = search_pictures(mapping_search_record())["evolution"]
    found = series_of(figure.drawing)
    assert found["highest"].points == [(1, 81.41), (2, 82.02)] and found["lowest"].points == [(1, 78.91), (2, 81.41)]
    mean = found["mean, with deviation"]
    assert mean.points == [(1, 80.16), (2, 81.715)] and mean.band[0] == pytest.approx((80.16 - 1.25, 80.16 + 1.25))
    assert sorted(y for _, y in found["member"].points) == pytest.approx([78.91, 81.41, 81.41, 82.02])
    assert figure.title == "Evolution of the fitness: elm-4"


def test_every_score_has_its_own_panel_of_generations_and_its_figure_on_a_page():
    record = mapping_search_record()
    figure = search_pictures(record)["distribution"]
    panels = dict(figure.drawing.panels)
    assert list(panels) == ["fitness", "sst2", "squad"]
    median = series_of(panels["squad"])["median"]
    assert median.boxes == [[75.82, 72.82], [76.04, 75.82]] and [x for x, _ in median.points] == [1, 2]
    assert "sst2: medians 86.00, 87.50" in figure.description
    assert [page.drawing for page in distribution_figures(Search.read(record))] == [panels["sst2"], panels["squad"]]


def test_one_score_is_the_fitness_and_needs_no_second_panel():
    record = mapping_search_record()
    record["scores"] = ["sst2"]
    for candidate in record["candidates"]:
        candidate["scores"] = {"sst2": candidate["fitness"]}
    assert [name for name, _ in search_pictures(record)["distribution"].drawing.panels] == ["fitness"]
    assert list(distribution_figures(Search.read(record))) == []


def test_a_single_member_and_a_single_generation_can_be_drawn():
    record = mapping_search_record()
    record["generations"] = record["generations"][:1]
    record["generations"][0]["members"] = record["generations"][0]["members"][:1]
    assert all("<title>member: 1, " in svg_of(figure) for figure in search_pictures(record).values())


def test_nothing_is_drawn_of_nothing():
    assert search_pictures(mapping_search_record() | {"generations": []}) == {}


def test_the_figure_of_shapes_has_every_trained_shape_the_front_the_best_and_the_limit():
    record = shape_search_record()
    figure = search_pictures(record)["loss_and_latency"]
    series = figure.drawing.series
    places = {one.label: [(round(x, 6), round(y, 6)) for x, y in one.points] for one in series}
    assert places == {"Pareto front": [(0.3, 0.5), (0.6, 0.2)], "shape": [(0.4, 0.6)], "best reward": [(0.6, 0.2)]}
    assert figure.drawing.limit == 1.0 and figure.title == "Loss and latency of shapes: shape"
    assert series[0].names == ["3x384h12f1536", "6x384h12f1536"] and "3x384h12f1536: 0.3, 0.5" in figure.description
    assert figure.caption.endswith("Limit of the latency: 1 of the teacher's.")
    record["limits"]["latency_share"] = None
    assert search_pictures(record)["loss_and_latency"].drawing.limit is None


def test_the_figure_of_teacher_layers_has_a_line_for_every_rung():
    record = layer_search_record()
    figure = search_pictures(record)["layers"]
    assert {series.label: series.points for series in figure.drawing.series} == {
        "after 10 steps": [(10, 40.0), (11, 39.0), (12, 41.0)],
        "after 30 steps": [(10, 50.0), (12, 49.0)],
        "recommended: layer 10": [(10, 50.0)],
    }
    assert "after 30 steps: 10, 50; 12, 49." in figure.description
    record["layers"][2]["scores"] = [{"step": 10, "score": None, "agreement": None, "explained": 3.0}]
    assert search_pictures(record)["layers"].drawing.series[0].points == [(10, 40.0), (12, 41.0)]
