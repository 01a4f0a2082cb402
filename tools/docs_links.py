"""A hook of MkDocs: figures, pages and examples elsewhere in the repository that pages link to.

Pages link to ``../results/...`` so that they can be read where the repository is shown. Here such
files become part of the site, under their own path.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

OUTSIDE = re.compile(r"\]\(\.\./((?:results|examples)/[^)#]+)\)")
PICTURE = re.compile(r"!\[[^]]*\]\(([^)]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add every file outside that some page links to; one that is missing stays a broken link."""
    for page in list(files.documentation_pages()):
        for path in OUTSIDE.findall(Path(page.abs_src_path).read_text(encoding="utf-8")):
            add(path, files, config)
    return files


def add(path: str, files: Any, config: Any) -> None:
    """Add a file outside, and the pictures of a page."""
    from mkdocs.structure.files import File

    source = Path(config.config_file_path).parent / path
    if files.get_file_from_path(path) is not None or not source.is_file():
        return
    files.append(File.generated(config, path, abs_src_path=str(source)))
    if source.suffix == ".md":
        for picture in PICTURE.findall(source.read_text(encoding="utf-8")):
            add(str(PurePosixPath(path).parent / picture), files, config)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point the links to where these files are on the site."""
    return OUTSIDE.sub(r"](\1)", markdown)
