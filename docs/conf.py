"""Sphinx settings."""

project = "Penstock"
author = "The Penstock authors"
copyright = "2026, The Penstock authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "Penstock"
exclude_patterns = ["_build"]
myst_heading_anchors = 2
autodoc_member_order = "bysource"
autodoc_typehints = "description"
suppress_warnings = ["myst.xref_missing"]
