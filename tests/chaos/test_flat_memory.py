"""The short version of the memory measurement: four times as much text needs no more of it."""

from benchmarks.streaming_memory import make_words, run_alone, write_corpus

#: Megabytes by which two measurements may differ; four times the text as objects of Python would be more.
NOISE = 10


def test_a_stream_of_more_text_needs_no_more_memory(tmp_path):
    grown = []
    for megabytes in (2, 8):
        write_corpus(tmp_path / str(megabytes), megabytes, make_words())
        row = run_alone("stream", tmp_path / str(megabytes), tmp_path, method="fork")
        grown.append(row["peak_megabytes"] - row["before_megabytes"])
    assert grown[1] < grown[0] + NOISE
