"""Notes of a kind make one line; notes of other kinds are never lost in it."""

from limbeck.evaluation.grid_summary import gather_notes


def test_a_line_for_each_kind():
    assert gather_notes(
        [
            "RTE train: 24 rows, but 2490 are published",
            "RTE validation: 277 rows, published 277",
            "MNLI train: 3 rows, but 392,702 are published",
            "RTE train: 1,024 x row cut to the longest length (such as row 17)",
            "AX: not there: test",
            "XNLI: not there: test.ar, test.bg",
            "MNLI train: 3 rows, but 392,702 are published",
            "MNLI validation_matched: 2 x row cut to the longest length (such as row 1, row 9)",
        ]
    ) == [
        "RTE train: 24 rows, but 2490 are published; likewise MNLI train",
        "RTE validation: 277 rows, published 277",
        "RTE train: 1,024 x row cut to the longest length (such as row 17); likewise MNLI validation_matched",
        "AX: not there: test; likewise XNLI",
    ]


def test_many_subjects_are_counted_and_a_single_note_stays_as_it_is():
    notes = [f"Task {letter}: {place} rows" for place, letter in enumerate("abcdef")]
    assert gather_notes(notes) == ["Task a: 0 rows; likewise Task b, Task c, Task d and 2 more"]
    assert gather_notes(["no subject at all"]) == ["no subject at all"]
    assert gather_notes([]) == []
