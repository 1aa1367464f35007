"""How Sphinx shows the pages; build.py beside this file calls it.

The theme is furo: it takes the reader's own fonts, brings its icons and scripts with it, and asks no other host for
anything. Search is Sphinx's own, in the browser, over an index that is part of the site.
"""

import re
from pathlib import Path

project = "twofold"
author = "The twofold authors"
copyright = author
_version = re.search(
    r'^version = "(.+)"$', Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"), re.MULTILINE
)
version = release = _version[1] if _version else ""

extensions = ["myst_parser"]
myst_heading_anchors = 4  # under the names that GitHub gives them
nitpicky = True
smartquotes = False  # what is typed is what is shown
suppress_warnings = ["misc.highlighting_failure"]  # a shown JSON line may leave something out

html_theme = "furo"
html_title = f"twofold {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = False  # the pages define no index entries
pygments_style = "default"
pygments_dark_style = "github-dark"
