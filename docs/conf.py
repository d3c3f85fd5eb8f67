"""Sphinx settings."""

project = "Penstock"
author = "The Penstock maintainers"
copyright = "2026, The Penstock maintainers"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Penstock"
exclude_patterns = ["_build"]
html_static_path = ["_static"]
html_css_files = ["pages.css"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 88  # one parameter a line, where a line has no room for all
suppress_warnings = ["ref.python"]  # the built-in `type` is also the name of a field of three classes
