"""A conversation with an agent: on a terminal (``terminal``) or on pipes (``plain``)."""
