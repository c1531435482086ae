"""The short version of the memory measurement: four times as much text needs no more of it."""

from functools import partial

from benchmarks import streaming_memory

from limbeck.corpus import CorpusSettings

#: Megabytes by which two measurements may differ; the blocks of four times the text, if they were kept, are 33 more.
NOISE = 20


def test_a_stream_of_more_text_needs_no_more_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming_memory, "CorpusSettings", partial(CorpusSettings, shuffle_buffer=100))
    grown = []
    for megabytes in (2, 8):
        folder = tmp_path / str(megabytes)
        streaming_memory.write_corpus(folder, megabytes, streaming_memory.make_words())
        row = streaming_memory.run_alone("stream", folder, tmp_path, method="fork")
        grown.append(row["peak_megabytes"] - row["before_megabytes"])
    assert grown[1] < grown[0] + NOISE
