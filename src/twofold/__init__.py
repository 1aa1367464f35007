"""twofold: the Python home of ACP v2 sessions."""

__version__ = "0.1.0"
