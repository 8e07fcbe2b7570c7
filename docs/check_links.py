"""Check the links of a built site to its own pages, files and headings: `check_links.py FOLDER`.

Links to other sites are not followed, so that this needs no network.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken(folder: Path) -> list[str]:
    """The links that lead nowhere, each with its page."""
    paths = [path.resolve() for path in folder.rglob("*.html") if "_static" not in path.parts]
    pages = {path: Page(path) for path in paths}
    found = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            anchors = pages[target].anchors if target in pages else None
            missing = anchors is not None and url.fragment and unquote(url.fragment) not in anchors
            if not target.exists() or missing:
                found.append(f"{path.relative_to(folder.resolve())}: {link}")
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    if not (folder / "index.html").exists():
        sys.exit(f"{folder} is not a built site")
    if found := broken(folder):
        sys.exit("\n".join(["links that lead nowhere:", *found]))
    print("all links of the site lead somewhere")


if __name__ == "__main__":
    main()
