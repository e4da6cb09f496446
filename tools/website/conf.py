"""Settings of Sphinx for the documentation site; ``build.py`` beside it runs it."""

from __future__ import annotations

from counterprobe.version import __version__

project = "counterprobe"
author = "The counterprobe developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "website.formulas",
    "website.names",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
exclude_patterns = ["data/**"]
highlight_language = "none"

myst_enable_extensions = ["deflist", "dollarmath", "fieldlist", "colon_fence"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 88

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "counterprobe"
# Summaries would be fetched, which a browser forbids to files.
html_show_search_summary = False
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#8ab8ee", "color-brand-content": "#8ab8ee"},
}
