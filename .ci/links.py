"""Follows every link of built documentation sites: files that are there, anchors that are there; says which are not.

uv run python .ci/links.py SITE
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src"}


class _Page(HTMLParser):
    """Collects where a page leads and what in it can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note a link's address, and every name."""
        found = dict(attributes)
        address = found.get(_LINKS.get(tag, ""))
        if address and found.get("rel") != "canonical":
            self.links.append(address)
        self.anchors |= {value for key in ("id", "name") if (value := found.get(key))}


def broken(site: Path) -> list[str]:
    """Return 'page: address' for every link within ``site`` that leads nowhere; other hosts are not asked."""
    pages = {file.resolve(): _Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        if (
            file.name == "404.html"
        ):  # it is served for any address, so its links are those of a site at the root
            continue
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            target = (
                (site / path.lstrip("/") if path.startswith("/") else file.parent / path).resolve()
                if path
                else file
            )
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else {unquote(parts.fragment)}
            if not target.is_file() or (unquote(parts.fragment) not in known):
                found.append(f"{file.relative_to(site.resolve())}: {address}")
    return found


if __name__ == "__main__":
    wrong = broken(Path(sys.argv[1]))
    print("\n".join(wrong) or "every link leads somewhere")
    sys.exit(bool(wrong))
