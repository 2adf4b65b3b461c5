"""Lets the portal's pages link to the packages' pages as files: right in the repository, right in the built sites.

The sites of the packages are built into folders beside the portal's pages, each under its package's name.
"""

import posixpath
import re
from typing import Any

_SOURCE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+apps/notebooks/[\w.-]+\)")
_FILE = re.compile(r"\]\((?:\.\./)+(?:packages|apps)/([\w-]+)/docs/([\w/-]+)\.md(#[\w-]+)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Return the page's text: links to a package's page lead to its site, those to a notebook's source are its name."""

    def built(match: re.Match[str]) -> str:
        name, stem, anchor = match.groups()
        target = f"{name}/" if stem == "index" else f"{name}/{stem}/"
        return f"]({posixpath.relpath(target, page.url or '.')}/{anchor or ''})"

    return _SOURCE.sub(r"\1", _FILE.sub(built, markdown))
