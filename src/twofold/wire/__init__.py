"""ACP's ``session/update`` as typed values, without losing what no model names.

Pick a version: ``wire.v1``, ``wire.v2``.
"""

from twofold.wire._codec import Codec, decode, encode
from twofold.wire._model import UNSET, Kept, Model, Other, UnsetType, is_array, is_object, same, to_json
from twofold.wire._read import Skipped

__all__ = [
    "UNSET",
    "Codec",
    "Kept",
    "Model",
    "Other",
    "Skipped",
    "UnsetType",
    "decode",
    "encode",
    "is_array",
    "is_object",
    "same",
    "to_json",
]
