"""What pages link to beside docs/ comes along into the site: recipes, scripts and result files.

Pages are read on a code host too, where `../benchmarks/results/model.json` leads to the file. In the site a copy of the
file stands below `repository/`, and the link is turned to it. A link to a folder becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
#: Pages outside of docs/ and their place in the site; one that does not exist is left out.
PAGES = {
    "recipes/README.md": "recipes.md",
    "examples/README.md": "examples.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?!https?://|mailto:|#)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, and the files that any page links to."""
    for source, uri in PAGES.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    linked = {path for file in list(files.documentation_pages()) for path in _linked_files(file)}
    for path in sorted(linked):
        files.append(File.generated(config, _site_place(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the page's links to where their targets are in the site."""
    return turn_links(markdown, page.file.src_uri)


def turn_links(markdown: str, uri: str) -> str:
    """Rewrite the links of a page that lead out of docs/, and all of a page that comes from elsewhere.

    Args:
        markdown: The page.
        uri: Its place in the site, such as `results/search.md`.
    """
    source = source_of(uri)

    def turned(match: re.Match[str]) -> str:
        path = _inside_repository(source, match["target"])
        if path is None or (path.startswith("docs/") and source.startswith("docs/")):
            return match[0]
        if (ROOT / path).is_dir():
            return match["text"]
        place = posixpath.relpath(_site_place(path), posixpath.dirname(uri) or ".")
        return f"[{match['text']}]({place}{match['anchor'] or ''})"

    return _LINK.sub(turned, markdown)


def source_of(uri: str) -> str:
    """The repository's path of the page at a place in the site."""
    return next((source for source, place in PAGES.items() if place == uri), f"docs/{uri}")


def _linked_files(file: File) -> Iterator[str]:
    source = source_of(file.src_uri)
    for match in _LINK.finditer(file.content_string):
        path = _inside_repository(source, match["target"])
        if path is not None and not path.startswith("docs/") and path not in PAGES and (ROOT / path).is_file():
            yield path


def _inside_repository(source: str, target: str) -> str | None:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return None if path.startswith("..") else path


def _site_place(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else PAGES.get(path, f"repository/{path}")
