"""The bar: a rate in the reporter's unit, lines where there is no terminal, and room for what others write."""

import io
import re
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
from rich.console import Console

from limbeck.core import progress_bars
from limbeck.core.corpus_progress import CorpusProgress
from limbeck.core.progress import Count, describe_rate, no_progress, part_of
from limbeck.core.progress_bars import Bars, ProgressBar, TimeLeft, activity, line_by_line


class Terminal(io.StringIO):
    """What a terminal is sent."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when a test says so."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress_bars.time, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def open_terminal():
        # In the test itself: pytest puts its own standard error there between the fixtures and the test.
        monkeypatch.setattr(sys, "stderr", Terminal())
        return sys.stderr

    return open_terminal


def shown(terminal):
    """The last state of the bar, without colours and cursor movements."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).rsplit("\r", 1)[-1].strip()


@pytest.mark.parametrize(
    ("per_second", "said"),
    [
        (12_345.6, "12,346 cells/s"), (10, "10 cells/s"), (1, "1.0 cells/s"), (1.26, "1.3 cells/s"),
        (0.99, "59 cells/min"), (0.05, "3.0 cells/min"), (1 / 60, "1.0 cells/min"), (0.01, "36 cells/h"),
        (1 / 7200, "0.5 cells/h"),
    ],
)  # fmt: skip
def test_rates_by_the_second_minute_or_hour(per_second, said):
    assert describe_rate(per_second, "cells") == said


@pytest.mark.parametrize(
    ("per_second", "span", "written"),
    [(0.0112, "min", "0.67 cells/min"), (0.001, "min", "3.6 cells/h"), (0.5, "h", "30 cells/min")],
)
def test_a_rate_keeps_its_span_while_its_number_can_be_read(per_second, span, written):
    assert describe_rate(per_second, "cells", span=span) == written


def test_a_part_reports_its_share_of_the_whole_and_its_count():
    told = []
    inner = part_of(part_of(lambda *now: told.append(now), 0.5, 1.0), 0.0, 0.5)
    inner(0.5, "half", Count(3, "cells"))
    inner(1.0, "done")
    assert told == [(0.625, "half", Count(3, "cells")), (0.75, "done", None)]
    assert no_progress(0.5, "x", Count(1, "cells")) is None


@pytest.mark.parametrize(
    ("seconds", "reports", "line"),
    [
        (6, [(done / 10, "mrpc [x]", Count(done, "cells")) for done in range(4)],
         "20%: mrpc [x], 10 cells/min, 48 s left"),
        (10, [(0.0, "loading"), (0.0, "loading")], "0%: loading (for 10 s so far)"),
        (10, [(0.0, "loading"), (0.5, "loading")], "50%: loading, 10 s left"),
        (1, [(0.5, "loading", Count(1, "tasks")), *((0.5 + n / 50, "mrpc", Count(n, "cells")) for n in range(15))],
         "76%: mrpc, 1.0 cells/s, 12 s left"),
    ],
)  # fmt: skip
def test_without_a_terminal_there_is_a_line_now_and_then(clock, monkeypatch, seconds, reports, line):
    monkeypatch.setattr(progress_bars, "LINE_SECONDS", 15.0)
    stream = io.StringIO()
    with ProgressBar(Console(file=stream, width=40)) as bar:
        for report in reports:
            clock.now += seconds
            bar(*report)
    assert stream.getvalue().splitlines() == [line]


def test_the_first_line_may_come_at_once(clock):
    stream = io.StringIO()
    with ProgressBar(Console(file=stream), at_once=True) as bar:
        for done in range(3):
            bar(done / 10, "reading mrpc")
    assert stream.getvalue().splitlines() == ["0%: reading mrpc"]


@pytest.fixture
def hurry(monkeypatch):
    """Lines that are due after a moment."""
    monkeypatch.setattr(progress_bars, "LINE_SECONDS", 0.05)
    monkeypatch.setattr(progress_bars, "_WATCH_SECONDS", 0.01)
    monkeypatch.setattr(progress_bars, "_BRIEF_SECONDS", 0.0)


def lines_of(stream, count):
    """The lines of a stream, once there are so many."""
    end = time.monotonic() + 20
    while stream.getvalue().count("\n") < count and time.monotonic() < end:
        time.sleep(0.005)
    return stream.getvalue().splitlines()


def test_a_line_comes_again_while_nothing_reports_and_says_for_how_long(hurry):
    stream = io.StringIO()
    with ProgressBar(Console(file=stream), at_once=True) as bar:
        bar(0.0, "compiling")
        first, second, *_ = lines_of(stream, 2)
        bar(0.3, "training")
        last = lines_of(stream, stream.getvalue().count("\n") + 1)[-1]
    assert first == "0%: compiling"
    assert second == f"{first} (for 0 s so far)"
    assert last.startswith("30%: training")


def test_a_repeated_line_counts_the_time_left_down_and_drops_it_when_it_has_passed(clock):
    stream = io.StringIO()
    bars = Bars(Console(file=stream), at_once=True)
    bars.line("80%: latency", "51 rounds/min", left=TimeLeft(25.0))
    for _ in range(3):
        clock.now += 10
        bars._repeat_line()
    bars.line("a: step 3/9", left=TimeLeft(90.0, "{minutes:.1f} min left"))
    clock.now += 30
    bars._repeat_line()
    bars.begin_step("writing")
    clock.now += 10
    bars._repeat_line()
    assert stream.getvalue().splitlines() == [
        "80%: latency, 51 rounds/min, about 25 s left",
        "80%: latency, 51 rounds/min, about 15 s left (for 10 s so far)",
        "80%: latency, 51 rounds/min, about 5 s left (for 20 s so far)",
        "80%: latency, 51 rounds/min (for 30 s so far)",
        "a: step 3/9, 1.0 min left (for 30 s so far)",
        "writing …",
        "writing (for 10 s so far)",
    ]


@pytest.mark.parametrize("reports", [True, False], ids=["reported again", "repeated"])
def test_no_line_is_like_the_one_before_however_long_a_step_takes(clock, reports):
    stream = io.StringIO()
    bar = ProgressBar(Console(file=stream), at_once=True)
    for _ in range(800):
        bar(0.66, "cell 3 of 4") if reports or clock.now == 100.0 else bar._repeat_line()
        clock.now += 10
    lines = stream.getvalue().splitlines()
    assert "(for 3 min 10 s so far)" in lines[19]
    assert "(for 2 h 12 min 50 s so far)" in lines[797]
    assert all(line != before for before, line in pairwise(lines))


def test_no_time_left_is_told_of_work_of_several_kinds(clock):
    stream = io.StringIO()
    with ProgressBar(Console(file=stream), at_once=True, is_even=False) as bar:
        for done in range(3):
            bar(0.8 + done / 100, "latency, 32 x 128 tokens", Count(done, "rounds"))
            clock.now += 25
    assert stream.getvalue().splitlines() == [
        "80%: latency, 32 x 128 tokens",
        "81%: latency, 32 x 128 tokens, 2.4 rounds/min",
        "82%: latency, 32 x 128 tokens, 2.4 rounds/min",
    ]


def test_each_part_of_work_has_its_own_percentage_count_and_time_left(clock):
    stream = io.StringIO()
    with ProgressBar(Console(file=stream), at_once=True, in_parts=True) as bar:
        for part in ("vectors of the teacher", "vectors of the student"):
            for done in (0, 250, 500):
                bar(done / 1000, part, Count(done, "tokens", 1000))
                clock.now += 100 if "teacher" in part else 10
        bar(0.0, "latency", Count(0, "rounds"))
        clock.now += 10
        bar(0.5, "latency", Count(4, "rounds"))
    assert stream.getvalue().splitlines() == [
        "0%: vectors of the teacher, 0 of 1,000 tokens",
        "25%: vectors of the teacher, 250 of 1,000 tokens, 5.0 min left for this part",
        "50%: vectors of the teacher, 500 of 1,000 tokens, 3.3 min left for this part",
        "0%: vectors of the student, 0 of 1,000 tokens",
        "25%: vectors of the student, 250 of 1,000 tokens, 30 s left for this part",
        "50%: vectors of the student, 500 of 1,000 tokens, 20 s left for this part",
        "0%: latency",
        "50%: latency, 24 rounds/min, 10 s left for this part",
    ]


def test_a_long_step_does_not_make_the_time_left_rise(clock):
    stream = io.StringIO()
    bar = ProgressBar(Console(file=stream), at_once=True)
    for share, seconds in [(0.0, 100), (0.5, 40), (None, 40), (0.7, 10), (0.72, 10), (0.75, 200), (0.8, 10)]:
        bar._repeat_line() if share is None else bar(share, "scoring", Count(share * 100, "texts"))
        clock.now += seconds
    assert [line.split(", ")[-1] for line in stream.getvalue().splitlines()] == [
        "0%: scoring",
        "1.7 min left",
        "1.7 min left (for 40 s so far)",
        "1.3 min left",
        "1.2 min left",
        "1.1 min left",
        # So much longer than the estimate that the time left has to be told.
        "1.7 min left",
    ]


def test_a_time_left_that_stays_a_little_longer_is_told_soon(clock):
    stream = io.StringIO()
    bar = ProgressBar(Console(file=stream), at_once=True)
    # After a quick quarter each percent takes longer than one before it, so that every estimate is a little longer.
    share = 0.0
    bar(share, "scoring", Count(0, "texts"))
    clock.now += 120
    for number in range(8):
        share = 0.25 + number / 200
        bar(share, "scoring", Count(share * 1000, "texts"))
        clock.now += 8
    times_left = [line.split(", ")[-1].partition(" (")[0] for line in stream.getvalue().splitlines()[1:]]
    assert times_left == [
        "6.0 min left", "6.0 min left", "6.0 min left", "6.7 min left", "6.7 min left", "6.7 min left", "7.2 min left",
        "7.2 min left",
    ]  # fmt: skip


def test_a_time_left_that_would_be_written_as_zero_is_left_out():
    assert TimeLeft(2.0, "{minutes:.1f} min left").after(0.0) == ""
    assert TimeLeft(4.0, "{minutes:.1f} min left").after(0.0) == "0.1 min left"
    assert TimeLeft(0.4).after(0.0) == ""


def test_only_finished_work_is_at_100_percent(clock):
    stream = io.StringIO()
    with ProgressBar(Console(file=stream), at_once=True) as bar:
        bar(0.999, "scoring")
        clock.now += 10
        bar(1.0, "scoring")
    assert stream.getvalue().splitlines() == ["99%: scoring", "100%: scoring"]


def test_what_has_ended_is_not_repeated(hurry):
    stream = io.StringIO()
    with ProgressBar(Console(file=stream), at_once=True) as bar:
        bar(0.2, "training")
    before = stream.getvalue()
    time.sleep(0.1)
    assert stream.getvalue() == before


def test_an_activity_is_told_once_it_takes_longer(hurry):
    stream = io.StringIO()
    with activity(Console(file=stream), "loading [x]") as tick:
        assert lines_of(stream, 1)[0].startswith("loading [x]")
        tick(3, 1200, "rows")
        assert "loading [x]: 3 of 1,200 rows" in lines_of(stream, stream.getvalue().count("\n") + 2)[-1]


def test_a_brief_activity_is_not_told():
    stream = io.StringIO()
    with activity(Console(file=stream), "loading") as tick:
        tick(1, 2, "rows")
    assert stream.getvalue() == ""


def test_an_activity_is_a_bar_on_a_terminal_that_goes_when_it_is_done(terminal):
    screen = terminal()
    with activity(Console(stderr=True), "loading") as tick:
        tick(1, 2, "rows")
        assert "loading" in screen.getvalue()
    assert "loading" not in shown(screen)


def test_the_clock_of_an_activity_goes_on_at_a_full_count_beside_the_time_left(clock, terminal, monkeypatch):
    terminal()
    monkeypatch.setenv("COLUMNS", "80")
    opened = []
    enter = Bars.__enter__
    monkeypatch.setattr(Bars, "__enter__", lambda bars: [opened.append(bars), enter(bars)][1])
    with activity(Console(stderr=True), "making the student") as tick:

        def line_after(seconds, done):
            clock.now += seconds
            tick(done, 320_000, "tokens, pass 2/5")
            page = Console(file=io.StringIO(), width=80)
            page.print(opened[0].bars.get_renderable())
            return page.file.getvalue().strip()

        assert line_after(10, 20_000).endswith("20,000 of 320,000 tokens, pass 2/5 0:00:10"), "one count has no pace"
        assert line_after(300, 170_000).endswith("170,000 of 320,000 tokens, pass 2/5 0:05:10 5.0 min left")
        assert line_after(270, 305_000).endswith("0:09:40 30 s left")
        assert line_after(20, 320_000).endswith("0:10:00")
        assert line_after(60, 320_000).endswith("0:11:00"), "the work goes on"
        assert line_after(1, 10).endswith("0:11:01"), "a smaller count begins anew"


def test_of_a_single_thing_no_amount_is_told(hurry):
    stream = io.StringIO()
    with activity(Console(file=stream), "held-out loss") as tick:
        tick(1, 1, "batches")
        time.sleep(0.3)
    assert stream.getvalue() and "batch" not in stream.getvalue()


def test_the_clock_of_a_bar_says_whether_it_is_the_time_left_or_the_time_that_passed(clock):
    bars = CorpusProgress(Console(file=io.StringIO())).bars
    bars.add_task("step", total=4, amount="", rate="")
    column = bars.columns[-1]
    for done, said in ((1, "--:--"), (2, "00:20 left"), (4, "took 00:40")):
        clock.now += 10.0 * (done - bars.tasks[0].completed)
        bars.update(bars.tasks[0].id, completed=done)
        assert column.render(bars.tasks[0]).plain == said


def test_a_bar_has_words_before_its_first_report(terminal):
    bar = ProgressBar(Console(stderr=True))
    assert bar.bars.tasks[0].description == "starting"


def test_what_begins_is_a_line_where_no_bar_shows_it(clock, terminal):
    stream = io.StringIO()
    report = line_by_line(no_progress, Console(file=stream))
    for what in ("loading [x]", "loading [x]", "writing"):
        report(0.5, what)
    assert stream.getvalue() == "loading [x] …\nwriting …\n"
    screen, told = terminal(), []
    line_by_line(lambda *now: told.append(now), Console(stderr=True))(0.5, "loading", Count(1, "models"))
    assert screen.getvalue() == ""
    assert told == [(0.5, "loading", Count(1, "models"))]


def test_nothing_is_said_on_a_quiet_console(clock, capfd):
    with ProgressBar(Console(stderr=True, quiet=True)) as bar:
        clock.now += 60
        bar(0.5, "loading", Count(1, "cells"))
    assert capfd.readouterr() == ("", "")


def test_a_bar_shows_share_rate_and_time_left(clock, terminal):
    screen = terminal()
    with ProgressBar(Console(stderr=True)) as bar:
        for done in range(3):
            bar(done / 10, "cell 3 of 10", Count(done, "cells"))
            clock.now += 3600  # Far longer than rich remembers by itself.
        bar.bars.refresh()
        line = shown(screen)
    assert re.fullmatch(r". cell 3 of 10 \S+ +20% 1.0 cells/h 8:00:00 left", re.sub("[━╸╺]+", "–", line)), line


def test_the_rate_begins_anew_with_another_unit_or_count(clock, terminal):
    terminal()
    with ProgressBar(Console(stderr=True)) as bar:
        for count, rate in (
            (Count(100, "tokens"), ""), (Count(300, "tokens"), "20 tokens/s"), (Count(0, "tokens"), ""),
            (Count(50, "tokens"), "5.0 tokens/s"), (Count(51, "rounds"), ""), (Count(71, "rounds"), "2.0 rounds/s"),
            (None, ""),
        ):  # fmt: skip
            bar(0.5, "work", count)
            assert bar.bars.tasks[0].fields["rate"] == rate
            clock.now += 10


def test_the_bar_gives_way_to_what_others_write_and_comes_back_until_it_ends_also_by_an_error(terminal):
    screen = terminal()
    with pytest.raises(ZeroDivisionError), ProgressBar(Console(stderr=True)) as bar:
        bar(0.25, "loading")
        assert bar.bars.live.is_started
        assert sys.stderr is not screen and sys.stderr.isatty()
        sys.stderr.write("\rmodel.safetensors:  10%")
        sys.stderr.flush()
        assert not bar.bars.live.is_started
        sys.stderr.write("\rmodel.safetensors: 100%\n")
        assert shown(screen) == "model.safetensors: 100%"
        assert "10%\rmodel" in screen.getvalue()
        bar(0.5, "measuring")
        assert bar.bars.live.is_started
        bar.bars.refresh()
        assert "measuring" in shown(screen)
        _ = 1 / 0
    assert sys.stderr is screen
    assert "measuring" not in shown(screen)


# The corpus


def test_lines_without_a_terminal_have_amount_rate_and_time_left(clock, monkeypatch):
    monkeypatch.setattr(progress_bars, "LINE_SECONDS", 30.0)
    stream, told = io.StringIO(), []
    with CorpusProgress(Console(file=stream, width=40), lambda *now: told.append(now)) as report:
        for done in range(4):
            report("reading my [texts]", done * 10**8, 10**9, "bytes")
            clock.now += 20
        report("waiting for another process", 0, None, "")
    assert stream.getvalue().splitlines() == [
        "reading my [texts] …",
        "reading my [texts]: 200.0 MB of 1.0 GB, 5.0 MB/s, about 160 s left",
        "waiting for another process …",
    ]
    assert told[2:] == [
        ("reading my [texts]", 2 * 10**8, 10**9),
        ("reading my [texts]", 3 * 10**8, 10**9),
        ("waiting for another process", 0, None),
    ]


def test_each_step_has_a_bar_with_its_own_rate(clock):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=110, color_system=None)
    with CorpusProgress(console) as report:
        report("reading a", 0, None, "documents")
        clock.now += 10
        report("reading a", 5000, None, "documents")
        report("tokenising", 0, 4000, "characters")
        clock.now += 2
        report("tokenising", 2000, 4000, "characters")
        report("loading", 900, None, "bytes")
        report.bars.refresh()
    found = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert re.search(r"reading a +\S+ +5,000 documents +500 documents/s", found)
    assert re.search(r"tokenising +\S+.* 2,000 of 4,000 characters +1,000 characters/s", found)
    assert re.search(r"loading +\S+ +900 bytes", found)


@pytest.mark.parametrize("is_activity", [False, True])
def test_a_terminal_of_80_columns_shows_the_whole_time_left(clock, is_activity):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None)
    work = "comparing the teacher's sentence vectors with those of sentence-transformers"
    if is_activity:
        with activity(console, work) as tick:
            tick(1, 12, "batches")
            clock.now += 10
            tick(2, 12, "batches")
    else:
        with ProgressBar(console) as report:
            report(0.1, work, Count(100, "tokens"))
            clock.now += 10
            report(0.2, work, Count(1100, "tokens"))
            report.bars.refresh()
            clock.now += 1
            report(0.3, "a short step", Count(2100, "tokens"))
            report.bars.refresh()
    lines = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", stream.getvalue()))
    assert all(len(line) <= 80 for line in lines)
    assert any(line.endswith(" left") and "comparing the teacher's" in line for line in lines)
    if not is_activity:
        assert any("a short step" in line and "tokens/s" in line and line.endswith(" left") for line in lines)
