"""Settings of Sphinx. ``make docs`` builds the documentation into build/docs; warnings are errors."""

from __future__ import annotations

import importlib.metadata

project = "ctrlchan"
author = "the ctrlchan developers"
project_copyright = author
try:
    release = importlib.metadata.version("ctrlchan")
except importlib.metadata.PackageNotFoundError:
    release = "unreleased"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
html_theme = "furo"
html_title = "ctrlchan"
# A page of its own, with its charts: python -m bench.page.
html_extra_path = ["benchmarks.html"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "undoc-members": True}
# ``Outcome.bytes`` and ``Sent.bytes`` make every annotation ``bytes`` ambiguous; the links are not needed.
suppress_warnings = ["ref.python"]
