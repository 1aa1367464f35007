"""Measurements of twofold beside the parsers and SDKs that it is compared with: `python -m benchmarks`."""
