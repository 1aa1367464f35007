"""Bytes to models and back: the quick decoder first, the keeping reader when it refuses.

This is the one place of ``wire`` that knows the JSON-RPC envelope: a ``session/update`` line is decoded in one pass,
because taking the envelope off first costs as much again as the whole decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from twofold.jsonrpc import MAX_DEPTH, Notification, dumps, loads, parse, too_deep
from twofold.wire._model import Model, Other, to_json
from twofold.wire._read import Reading, Skipped, hook, read

__all__ = ["Codec", "decode", "encode"]

Params = TypeVar("Params", bound=Model)
Update = TypeVar("Update")
M = TypeVar("M", bound=Model)

_SHALLOW: Final = 2 * MAX_DEPTH  # bytes: shorter JSON text cannot be nested too deeply
_REFUSALS: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


def _line_decoder(line: Any) -> Callable[[bytes], Any]:
    """Make :attr:`Codec.decode_line`; as a function of its own it saves a tenth of what the decoding costs."""
    decode = msgspec.json.Decoder(line, dec_hook=hook).decode

    def decode_line(line: bytes) -> Any:
        """Read a JSON-RPC line if it is a plain, strict ``session/update``, else give ``None``: not said to be wrong.

        This is the quick way for the common line. What it declines, :func:`twofold.jsonrpc.parse` and
        ``decode_params`` look at in full, or ``read_line`` does both.
        """
        if len(line) > _SHALLOW and too_deep(line):  # asked first: a thread's stack may end before the recursion does
            return None
        try:
            return decode(line).params
        except _REFUSALS:
            return None

    return decode_line


class Codec(Generic[Params, Update]):
    """Reads one protocol version's ``session/update``: whole lines, params, or bare updates.

    Every method raises :class:`~twofold.exceptions.ParseError` for bytes that are no JSON text and
    :class:`~twofold.exceptions.Malformed`, with a JSON path, for JSON of the wrong shape. With ``skipped``, reading is
    lenient (U-6): bad items of arrays and bad ``_meta`` values are left out and noted in the list that was given.
    """

    def __init__(self, params: type[Params], update: Any, line: Any) -> None:
        self._params: Final = params
        self._update: Final = update
        self.decode_line: Final[Callable[[bytes], Params | None]] = _line_decoder(line)
        self._params_decoder: Final = msgspec.json.Decoder(params, dec_hook=hook)
        self._update_decoder: Final = msgspec.json.Decoder(update, dec_hook=hook)
        self.kinds: Final = frozenset(
            str(one.__struct_config__.tag) for one in get_args(update) if not issubclass(one, Other)
        )

    def read_line(self, line: bytes, *, skipped: list[Skipped] | None = None) -> Params | None:
        """Read a JSON-RPC line if it is a ``session/update``, else give ``None``: it is another message, or a batch.

        The quick way and the full one together. Raises :class:`~twofold.exceptions.InvalidFrame`, too, for JSON that is
        no JSON-RPC message.
        """
        params = self.decode_line(line)
        if params is not None:
            return params
        frame = parse(line)
        if not isinstance(frame, Notification) or frame.method != "session/update":
            return None
        return self.decode_params(frame.params, skipped=skipped)

    def decode_params(
        self, raw: bytes | Raw | UnsetType, *, path: str = "$.params", skipped: list[Skipped] | None = None
    ) -> Params:
        """Read the params of a ``session/update``, as bytes or as a frame holds them."""
        if isinstance(raw, UnsetType):
            return self.read_params(UNSET, path=path)
        return cast(Params, self._decode(self._params_decoder, self._params, bytes(raw), path, skipped))

    def decode_update(self, raw: bytes, *, path: str = "$", skipped: list[Skipped] | None = None) -> Update:
        """Read a bare update object."""
        return cast(Update, self._decode(self._update_decoder, self._update, raw, path, skipped))

    def read_params(self, value: Any, *, path: str = "$.params", skipped: list[Skipped] | None = None) -> Params:
        """Read params that are plain JSON values already."""
        return cast(Params, self._read(self._params, value, path, skipped))

    def read_update(self, value: Any, *, path: str = "$", skipped: list[Skipped] | None = None) -> Update:
        """Read an update that is plain JSON values already."""
        return cast(Update, self._read(self._update, value, path, skipped))

    def _decode(
        self, decoder: msgspec.json.Decoder[Any], type_: Any, raw: bytes, path: str, skipped: list[Skipped] | None
    ) -> Any:
        if not too_deep(raw):
            try:
                return decoder.decode(raw)
            except _REFUSALS:
                pass
        return self._read(type_, loads(raw), path, skipped)

    def _read(self, type_: Any, value: Any, path: str, skipped: list[Skipped] | None) -> Any:
        reading = Reading(lenient=skipped is not None)
        model = read(type_, value, path, reading)
        if skipped is not None and reading.skipped:
            skipped.extend(reading.skipped)
        return model


def decode(model: type[M], raw: bytes | Raw | UnsetType, *, path: str = "$.params") -> M:
    """Read JSON as one model, keeping its unknown fields: what a request or an answer carries.

    Raises :class:`~twofold.exceptions.ParseError` and :class:`~twofold.exceptions.Malformed` as a codec does.
    """
    if isinstance(raw, UnsetType):  # nothing was sent: fine where nothing is required
        return cast(M, read(model, {}, path, Reading()))
    return cast(M, read(model, loads(bytes(raw)), path, Reading()))


def _no_extras(value: Any) -> Any:
    raise NotImplementedError(type(value).__name__)


_encoder: Final = msgspec.json.Encoder(enc_hook=_no_extras)


def encode(model: Model) -> bytes:
    """Write a model as JSON, its extras beside its known fields. Omitted stays omitted, ``null`` stays ``null``."""
    try:
        return _encoder.encode(model)
    except (NotImplementedError, UnicodeEncodeError):  # extras, lone surrogates
        return dumps(to_json(model))
