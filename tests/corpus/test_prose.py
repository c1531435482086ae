import inspect
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limbeck.corpus.prose import extract_prose, unwrap_markup


def prose(text):
    return extract_prose(inspect.cleandoc(text)).paragraphs


GOOGLE = """Compute the thing that is asked for.

    It takes a while, and the result is
    kept for the next call.

    Args:
        name (str): The name of the thing,
            as it was given by the caller.

        other: Another thing that is needed here.

    Returns:
        The thing that was asked for, if it is there.

    Note:
        Do not call this function twice in a row.

    Example:
        A sentence inside of the example section.

        >>> compute("x")
        3
    """
NUMPY = """Compute the thing that is asked for.

    Parameters
    ----------
    name : str
        The name of the thing, as it was given.

        A second paragraph of the same parameter.
    *args, **kwargs
        Handed on to somebody else entirely.

    Returns
    -------
    The thing that was asked for.

    Notes
    -----
    The method is due to somebody else.

    References
    ----------
    .. [1] A. Author, "A title of some paper", 1990.
    """
REST = """Compute the thing that is asked for.

    :param name: The name of the thing
        that goes on here.
    :type name: str
    :returns: The thing that was asked for.

    .. note::
       This is inside of a directive body.

    It can be used like this::

        compute(the thing that is code here)

    Afterwards the prose goes on.

    ===== =====
    table of words here
    ===== =====

    | a table | of words here |

    +-----+
    | x y z words |
    +-----+

    @param name: the epytext style of parameters
    """


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GOOGLE,
            [
                "It takes a while, and the result is kept for the next call.",
                "Do not call this function twice in a row.",
            ],
        ),
        (NUMPY, ["The method is due to somebody else."]),
        (REST, ["It can be used like this:", "Afterwards the prose goes on."]),
    ],
    ids=["google", "numpy", "rest"],
)
def test_parameter_lists_and_code_are_left_out(text, expected):
    assert prose(text) == ["Compute the thing that is asked for.", *expected]


def test_fences_headings_prompts_and_unmarked_code_are_left_out():
    text = """
    # Heading of the page

    Another heading here
    ====================

    Words before the fence.

    ~~~ python
    words inside of the fence

    ~~~

    In [1]: some words of a session
    and more words of it

    $ run some words here

    from some.module import anything_at_all
    words that follow the import

    https://example.org/some/long/path

    Words after all of that, see https://example.org/x for more.
    """
    assert prose(text) == ["Words before the fence.", "Words after all of that, see for more."]


def test_list_items_remain_when_they_are_prose():
    text = """There are two kinds of them:

    - short one
    - the kind that is explained in
      a whole sentence of words.
    1. another that is numbered but long enough.

    name
        What the name stands for, a definition.
    """
    assert prose(text) == [
        "There are two kinds of them:",
        "the kind that is explained in a whole sentence of words.",
        "another that is numbered but long enough.",
        "What the name stands for, a definition.",
    ]


def test_has_summary_only_when_the_first_words_are_prose():
    assert extract_prose("A summary of it.\n\nMore words about it.").has_summary
    assert not extract_prose("f(x, y)\n\nMore words about it.").has_summary
    assert not extract_prose("").has_summary


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("uses :class:`~a.b` here", "uses b here"),
        ("uses :py:meth:`!close` and :ref:`the guide <guide-x>`", "uses close and the guide"),
        ("``x = 1`` and `y` and `~a.b.c`", "x = 1 and y and c"),
        ("a `link <http://x.org>`_ and [text](http://x.org/a_(b)) too", "a link and text too"),
        ("**bold**, *emphasis* and 2 * 3 * 4", "bold, emphasis and 2 * 3 * 4"),
        ("*args and **kwargs stay", "*args and **kwargs stay"),
        ("as shown [1]_ by |name|", "as shown by name"),
        ("see [`Trainer`] and [~a.Model]", "see Trainer and a.Model"),
        ("C{code} in L{epytext}", "code in epytext"),
        (r"escaped \*star and a &lt; b", "escaped *star and a < b"),
        ("<b>tags</b> go, x < y stays", "tags go, x < y stays"),
        ("spaces \n\t are   one ![image](x.png)", "spaces are one"),
        ("snake_case_ and __init__ and example::", "snake_case and __init and example:"),
    ],
)
def test_inline_markup_is_unwrapped(text, expected):
    assert unwrap_markup(text) == expected


@given(st.text(alphabet=st.sampled_from(list("ab `*_[](){}<>|:.-=#~\\\n\"'>")), max_size=200))
def test_any_text_gives_single_lines(text):
    for paragraph in extract_prose(text).paragraphs:
        assert paragraph == paragraph.strip() != ""
        assert "\n" not in paragraph


@pytest.mark.parametrize("piece", ["[", "`", "*", "<a ", ":a", "|a", "[a](", "- ", "a_", "=", "__"])
def test_hostile_repetition_is_not_slow(piece):
    started = time.perf_counter()
    extract_prose(piece * 3000)
    assert time.perf_counter() - started < 2
