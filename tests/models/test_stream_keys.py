"""The name of a stream: its kind, its layer, and whose it is where several teach."""

from limbeck.models.streams import StreamKey


def test_a_key_prints_its_owner_where_it_has_one():
    assert str(StreamKey("hidden", 3)) == "hidden@3"
    assert str(StreamKey("hidden", 3, of="large")) == "large:hidden@3"
    assert StreamKey("hidden", 3, of="large") != StreamKey("hidden", 3)
