"""What is built is whole: every file of the package, its metadata, its types; it works outside of the tree."""

import email
import operator
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

import limbeck

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "limbeck"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def files_of_the_package() -> set[str]:
    """Every file of the source tree, below the package; links to folders followed, as builds do."""
    found = set()
    for folder, names, files in os.walk(PACKAGE, followlinks=True):
        names[:] = [name for name in names if name != "__pycache__"]
        found |= {PurePosixPath(Path(folder, name).relative_to(PACKAGE.parent)).as_posix() for name in files}
    return {name for name in found if not name.endswith(".pyc")}


def test_every_other_file_is_package_data():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["limbeck"]
    matched = {path.relative_to(PACKAGE).as_posix() for pattern in patterns for path in PACKAGE.glob(pattern)}
    others = {name.removeprefix("limbeck/") for name in files_of_the_package() if not name.endswith(".py")}
    assert others <= matched, sorted(others - matched)
    assert "py.typed" in others


def test_extras_are_spelt_alike_wherever_they_are_named():
    extras = PROJECT["project"]["optional-dependencies"]
    bounds = {}
    for requirement in [line for lines in extras.values() for line in lines if not line.startswith("limbeck[")]:
        name = requirement.replace(";", "<").replace("=", "<").replace(">", "<").split("<")[0].strip()
        assert bounds.setdefault(name, requirement) == requirement
    # Whoever develops can run everything; the documentation has a builder of its own.
    for extra in {"quickstart", "export", "tensorboard", "triton", "mteb"} & set(extras):
        assert set(extras[extra]) <= set(extras["dev"]), extra


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """Build a source distribution from a copy of the tree, and a wheel from that, with the packages installed here."""
    copy, out = tmp_path_factory.mktemp("tree") / "limbeck", tmp_path_factory.mktemp("dist")
    leave = shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=leave)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def site(dist, tmp_path_factory) -> Path:
    """A new environment that has the wheel, and the libraries of this one behind it; its interpreter's folder."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False, symlinks=True)
    packages = next((home / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    here = [path for path in sys.path if "site-packages" in path]
    (packages / "libraries.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    return home / "bin"


@pytest.mark.slow
def test_the_wheel_has_every_file_and_nothing_else(dist):
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        read = email.message_from_bytes(wheel.read(metadata))
        scripts = wheel.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == files_of_the_package()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert read["Version"] == limbeck.__version__
    assert read["Requires-Python"] == ">=3.11"
    assert set(read.get_all("Provides-Extra")) == set(PROJECT["project"]["optional-dependencies"])
    assert "limbeck = limbeck.__main__:main" in scripts


@pytest.mark.slow
def test_the_source_distribution_can_be_tested(dist):
    import tarfile

    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("tests/conftest.py", "docs/extending.md", "examples/README.md", "recipes/README.md", "Makefile"):
        assert name in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.slow
def test_the_installed_package_works_in_an_empty_folder(site, tmp_path):
    code = (
        "import sys, limbeck; assert 'site-packages' in limbeck.__file__, limbeck.__file__\n"
        "from limbeck.cli.main import run\n"
        "for command in ('methods minilmv2', 'recipe --example', 'schema'):\n"
        "    sys.argv[1:] = command.split()\n"
        "    try: run()\n"
        "    except SystemExit as stop: assert not stop.code, command\n"
        "    print('The next.')\n"
    )
    done = subprocess.run(
        [str(site / "python"), "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("The next.\n")[:3]
    assert all(map(operator.contains, printed, ("relation_kl", "teacher:", '"title": "Recipe"'))), printed


@pytest.mark.slow
def test_type_checkers_see_the_types(site, tmp_path):
    (tmp_path / "use.py").write_text(
        "import limbeck\n"
        "from limbeck.methods import register_method\n"
        "result = limbeck.distill('recipe.yaml')\n"
        "reveal_type(result.student)\n"
        "limbeck.distill(3)\n"
        "register_method('minilm')\n"
    )
    others = "torch.*,transformers.*,numpy.*,datasets.*,pyarrow.*,matplotlib.*,optuna.*,scipy.*,accelerate.*"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\n[mypy-{others}]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", "--python-executable", str(site / "python"), "use.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert 'Revealed type is "pathlib.Path"' in done.stdout, done.stdout + done.stderr
    assert 'use.py:5: error: Argument 1 has incompatible type "int"' in done.stdout
    assert 'use.py:6: error: Argument 1 to "register_method"' in done.stdout
    assert "import-untyped" not in done.stdout
