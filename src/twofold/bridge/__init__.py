"""Any agent behind any client: two connections, one converter where it is needed, one journal."""

from twofold.bridge._bridge import Bridge, Report

__all__ = ["Bridge", "Report"]
