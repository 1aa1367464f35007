"""Content blocks: what messages, tool results and summaries are made of. The same shapes serve both protocol versions.

(v1 has no ``icons`` on a resource link; a v1 reader finds them among the extras that travel as they are.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, UnsetType, field

from twofold.exceptions import Malformed
from twofold.wire._model import Model, OptionalMeta, Other, is_object
from twofold.wire._read import Reading, found, read, shape

__all__ = [
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "ContentBlock",
    "EmbeddedResource",
    "EmbeddedResourceResource",
    "Icon",
    "ImageContent",
    "OtherContentBlock",
    "ResourceLink",
    "TextContent",
    "TextResourceContents",
]


class Annotations(Model, frozen=True, kw_only=True):
    """Hints on whom content is for. ``audience``: roles (``assistant``, ``user``, open); ``priority``: 0 to 1."""

    audience: Sequence[str] | UnsetType | None = UNSET
    last_modified: str | UnsetType | None = UNSET
    priority: int | float | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TextContent(Model, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text, as Markdown unless said otherwise."""

    text: str
    annotations: Annotations | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ImageContent(Model, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image; ``data`` is base64 and is not decoded here."""

    data: str
    mime_type: str
    uri: str | UnsetType | None = UNSET
    annotations: Annotations | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class AudioContent(Model, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    """Audio; ``data`` is base64 and is not decoded here."""

    data: str
    mime_type: str
    annotations: Annotations | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class Icon(Model, frozen=True, kw_only=True):
    """A picture for a resource link; ``theme`` is ``light``, ``dark`` or another word."""

    src: str
    mime_type: str | UnsetType | None = UNSET
    sizes: Sequence[str] | UnsetType | None = UNSET
    theme: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ResourceLink(Model, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    """A resource by its URI; ``size`` in bytes."""

    uri: str
    name: str
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    icons: Sequence[Icon] | UnsetType | None = UNSET
    mime_type: str | UnsetType | None = UNSET
    size: int | UnsetType | None = UNSET
    annotations: Annotations | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class _ResourceContents:
    """What the quick decoder sees of an embedded resource: the two kinds have no tag, so ``_read`` tells them apart."""

    __slots__ = ()


class TextResourceContents(_ResourceContents, Model, frozen=True, kw_only=True):
    """An embedded resource as text."""

    uri: str
    text: str
    mime_type: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class BlobResourceContents(_ResourceContents, Model, frozen=True, kw_only=True):
    """An embedded resource as bytes; ``blob`` is base64 and is not decoded here."""

    uri: str
    blob: str
    mime_type: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


if TYPE_CHECKING:
    EmbeddedResourceResource: TypeAlias = TextResourceContents | BlobResourceContents
else:
    EmbeddedResourceResource = _ResourceContents


@shape(_ResourceContents)
def _read_resource(value: Any, path: str, reading: Reading) -> TextResourceContents | BlobResourceContents:
    if not is_object(value):
        raise Malformed(path, expected="an object", found=found(value))
    if "text" not in value and "blob" not in value:
        raise Malformed(path, expected='"text" or "blob"', found="neither")
    kind = TextResourceContents if isinstance(value.get("text"), str) or "blob" not in value else BlobResourceContents
    contents: TextResourceContents | BlobResourceContents = read(kind, value, path, reading)
    return contents


class EmbeddedResource(Model, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    """A resource with its contents."""

    resource: EmbeddedResourceResource
    annotations: Annotations | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherContentBlock(Other, frozen=True, kw_only=True, tag_field="type"):
    """A content block of a type that twofold does not know; kept, never shown as text."""


ContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | OtherContentBlock
)
