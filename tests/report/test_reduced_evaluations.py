"""Notes on evaluations of earlier versions, which measured less where time ran out."""

from limbeck.report.quality import comparison_notes


def test_the_note_tells_the_time_of_development_rows():
    seen = {"settings": {"budget_seconds": 30}, "seconds": {"development": 38.4}}
    assert any("development rows took 38 s, beside the 30 s" in line for line in comparison_notes(seen))
    assert not any("took" in line for line in comparison_notes({"seconds": {"development": 38.4}}))


def test_the_note_says_how_to_have_more():
    notes = comparison_notes({"settings": {"reduced": ["pairs", "batch_sizes"], "budget_seconds": 30}})
    [note] = [line for line in notes if "Evaluation reduced" in line]
    assert "take 30 s" in note and "evaluation.pairs, evaluation.batch_sizes" in note
    assert not any("Evaluation reduced" in line for line in comparison_notes({"settings": {}}))
