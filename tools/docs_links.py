"""A hook of MkDocs: figures and examples that pages link to, from elsewhere in the repository.

Pages link to ``../results/...`` so that they can be read where the repository is shown. Here such
files become part of the site, under their own path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

OUTSIDE = re.compile(r"\]\(\.\./((?:results|examples)/[^)#]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add every file outside that some page links to; one that is missing stays a broken link."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for page in list(files.documentation_pages()):
        for path in OUTSIDE.findall(Path(page.abs_src_path).read_text(encoding="utf-8")):
            if files.get_file_from_path(path) is None and (root / path).is_file():
                files.append(File.generated(config, path, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point the links to where these files are on the site."""
    return OUTSIDE.sub(r"](\1)", markdown)
