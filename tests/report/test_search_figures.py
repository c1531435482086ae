"""The figures of searches show the numbers of their records."""

from limbeck.core.studies import Search
from limbeck.report.plot_drawing import svg_of
from limbeck.report.search_kinds import KINDS, distribution_figures
from tests.support.reports import layer_search_record, mapping_search_record, shape_search_record


def search_pictures(record):
    return KINDS[record["kind"]].pictures(Search.read(record))


def series_of(plot):
    return {series.label: series for series in plot.series}


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


def test_the_figure_of_shapes_has_its_limit_where_there_is_one():
    record = shape_search_record()
    figure = search_pictures(record)["loss_and_latency"]
    places = {one.label: [(round(x, 6), round(y, 6)) for x, y in one.points] for one in figure.drawing.series}
    assert places == {"Pareto front": [(0.3, 0.5), (0.6, 0.2)], "shape": [(0.4, 0.6)], "best reward": [(0.6, 0.2)]}
    assert figure.drawing.limit == 1.0 and figure.title == "Loss and latency of shapes"
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
    record["layers"][2]["scores"] = [{"step": 10, "score": None, "agreement": None, "explained": 3.0}]
    assert search_pictures(record)["layers"].drawing.series[0].points == [(10, 40.0), (12, 41.0)]
