"""The page in a real browser: no sideways scrolling on a phone, nothing on the console, nothing asked of a network."""

import json
import shutil
import subprocess

import pytest
from PIL import Image

from limbeck.report.writing import write_report
from tests.golden.committed import FOLDERS

KINDS = (
    "finished", "comparison-with-costs", "search-mapping", "search-architecture", "search-teacher-layer", "inspections",
    "search-killed",
)  # fmt: skip
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000",
)  # fmt: skip
# A frame can be narrower than the least window of a browser; its document measures itself.
MEASURE = "<script>parent.postMessage([document.documentElement.scrollWidth, innerWidth], '*')</script>"
FRAMED = """<!DOCTYPE html><title>-</title><iframe id=f width={width} height=800 style="border:0"></iframe>
<script>addEventListener("message", e => {{ document.title = e.data.join(" ") }});
document.getElementById("f").srcdoc = {page}</script>"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")]


def browse(folder, *more):
    command = [BROWSER, *OPTIONS, f"--user-data-dir={folder / 'profile'}", *more]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr[-2000:]
    return process


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of all kinds of folders; then a run that is not finished, with a name that never ends."""
    folder = tmp_path_factory.mktemp("page")
    begun = folder / "run"
    shutil.copytree(FOLDERS["finished"], begun)
    record = json.loads((begun / "run.json").read_text())
    record |= {"name": "W" * 300, "status": "running", "stages": record["stages"][:1]}
    (begun / "run.json").write_text(json.dumps(record))
    return write_report([*(FOLDERS[kind] for kind in KINDS), begun], folder / "all.html").html


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_is_wider_than_the_window(page, tmp_path, width):
    text = page.read_text().replace('http-equiv="Content-Security-Policy"', 'name="policy"')
    measured = text.replace("</body>", f"{MEASURE}</body>")
    framed = tmp_path / "framed.html"
    framed.write_text(FRAMED.format(width=width, page=json.dumps(measured).replace("</", "<\\/")))
    process = browse(tmp_path, "--window-size=1400,900", "--dump-dom", framed.as_uri())
    title = process.stdout.split("<title>")[1].split("</title>")[0]
    content, window = map(int, title.split())
    assert window == width and content <= window


@pytest.mark.parametrize(("width", "most_lines"), [(360, 12), (1280, 6)])
def test_a_row_of_texts_is_read_without_scrolling(tmp_path, width, most_lines):
    run = tmp_path / "run"
    shutil.copytree(FOLDERS["finished"], run)
    record = json.loads((run / "run.json").read_text())
    sentence = "The vapour rises into the neck of the still, cools there and runs down as drops. " * 2
    pair = {"text": sentence, "pair": sentence, "label": "one document", "distance": 0.69}
    pair |= {"teacher": "0.42, more than 84% of pairs", "student": "0.17, more than 15% of pairs"}
    record["evaluation"]["agreement"]["examples"] = [pair]
    (run / "run.json").write_text(json.dumps(record))
    page = write_report([run], tmp_path / "page.html").html
    table = "document.querySelector('.texts')"
    row = f"{table}.querySelector('tbody tr')"
    text = page.read_text().replace('http-equiv="Content-Security-Policy"', 'name="policy"')
    sizes = f"[{table}.scrollWidth, {table}.parentElement.clientWidth, {row}.offsetHeight]"
    measured = text.replace("</body>", f"<script>parent.postMessage({sizes}, '*')</script></body>")
    framed = tmp_path / "framed.html"
    framed.write_text(FRAMED.format(width=width, page=json.dumps(measured).replace("</", "<\\/")))
    process = browse(tmp_path, "--window-size=1400,900", "--dump-dom", framed.as_uri())
    title = process.stdout.split("<title>")[1].split("</title>")[0]
    table_width, box_width, row_height = map(int, title.split())
    assert table_width <= box_width and row_height <= most_lines * 24


@pytest.mark.parametrize("scheme", ["0", "1"])
def test_it_is_drawn_in_both_themes_without_a_word_on_the_console(page, tmp_path, scheme):
    shot = tmp_path / "shot.png"
    looks = (f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={shot}")
    process = browse(tmp_path, "--window-size=1280,1600", *looks, page.as_uri())
    assert "CONSOLE" not in process.stderr
    picture = Image.open(shot).convert("L")
    corner = picture.getpixel((2, 2))
    assert corner < 40 if scheme == "0" else corner > 250, "dark is 0, light is 1"
    assert len(picture.getcolors(maxcolors=256)) > 50


def test_every_section_is_on_the_page(page, tmp_path):
    process = browse(tmp_path, "--dump-dom", page.as_uri())
    assert "CONSOLE" not in process.stderr
    for part in ("Runs", "Evolution of fitness", "Attention of", "</footer>"):
        assert part in process.stdout


def test_a_page_of_ten_runs_stays_below_four_megabytes(tmp_path):
    runs = [tmp_path / f"run-{number}" for number in range(10)]
    for run in runs:
        shutil.copytree(FOLDERS["finished"], run)
    report = write_report(runs, tmp_path / "ten.html")
    assert len(list(report.page.figures())) > 40 and report.html.stat().st_size < 4_000_000
