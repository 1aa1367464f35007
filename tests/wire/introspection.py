"""What the models say about themselves: all of them, their fields, and a small document for each."""

import functools
import random
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec.inspect as inspect

from twofold.wire import Model, Other, v1, v2
from twofold.wire._model import EXTRA

MODELS: list[tuple[ModuleType, type[Model]]] = [
    (module, offered)
    for module in (v1, v2)
    for name in module.__all__
    if isinstance(offered := getattr(module, name), type)
    and issubclass(offered, Model)
    and not issubclass(offered, Other)
    and offered is not Model
]


def fields(cls: type[Model]) -> list[inspect.Field]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return [one for one in info.fields if one.encode_name != EXTRA]


@functools.cache
def field_names() -> frozenset[str]:
    """Give every name that means something in some model: its fields and its tag."""
    names = {one.encode_name for _, cls in MODELS for one in fields(cls)}
    return frozenset(names | {str(cls.__struct_config__.tag_field) for _, cls in MODELS})


@functools.cache
def known_tags() -> frozenset[str]:
    return frozenset(str(cls.__struct_config__.tag) for _, cls in MODELS)


def models(value: Any) -> Iterator[Model]:
    """Give every model inside a value."""
    if isinstance(value, Model):
        yield value
        for name in value.__struct_fields__:
            yield from models(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            yield from models(item)


def smallest(cls: type[Model]) -> dict[str, Any]:
    """Give the document of a model with its required fields alone, all of them empty if they may be."""
    config = cls.__struct_config__
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    return tag | {one.encode_name: least(one.type) for one in fields(cls) if one.required}


def least(info: inspect.Type) -> Any:
    """Give the smallest value of a type that is not `null`."""
    match info:
        case inspect.Metadata(type=inner):
            return least(inner)
        case inspect.UnionType(types=types):
            return least(next(one for one in types if not isinstance(one, inspect.NoneType)))
        case inspect.AnyType():
            return False
        case inspect.StrType(min_length=low):
            return "x" * (low or 0)
        case inspect.IntType(ge=low):
            return low or 0
        case inspect.FloatType():
            return 0.0
        case inspect.BoolType():
            return False
        case inspect.DictType():
            return {}
        case inspect.CollectionType(item_type=item, min_length=low):
            return [least(item)] * (low or 0)
        case inspect.CustomType(cls=cls):
            return {"_ResourceContents": {"uri": "", "text": ""}, "_SelectOptions": [{"value": "", "name": ""}]}[
                cls.__name__
            ]
        case inspect.StructType(cls=cls) if issubclass(cls, Model):
            return smallest(cls)
    raise TypeError(info)


def nullable(info: inspect.Type) -> bool:
    match info:
        case inspect.Metadata(type=inner):
            return nullable(inner)
        case inspect.UnionType(types=types):
            return any(isinstance(one, inspect.NoneType) for one in types)
    return isinstance(info, inspect.AnyType)


def fullest(cls: type[Model], rng: random.Random, word: str) -> dict[str, Any]:
    """Give a document of a model with nearly all of its fields, whose free texts are `word`."""
    config = cls.__struct_config__
    tag = {} if config.tag_field is None else {config.tag_field: config.tag}
    return tag | {
        one.encode_name: some(one.type, rng, word) for one in fields(cls) if one.required or rng.random() < 0.9
    }


def some(info: inspect.Type, rng: random.Random, word: str) -> Any:
    """Give a value of a type."""
    match info:
        case inspect.Metadata(type=inner):
            return some(inner, rng, word)
        case inspect.UnionType(types=types):
            return some(rng.choice([one for one in types if not _is_other(one)]), rng, word)
        case inspect.AnyType() | inspect.DictType():
            return {word: [word, None, 1.5, {word: True}]}
        case inspect.StrType():
            return word
        case inspect.CollectionType(item_type=item):
            return [some(item, rng, word) for _ in range(rng.randint(1, 2))]
        case inspect.CustomType(cls=cls) if cls.__name__ == "_ResourceContents":
            return {"uri": word, rng.choice(["text", "blob"]): word}
        case inspect.NoneType():
            return None
        case inspect.StructType(cls=cls) if issubclass(cls, Model):
            return fullest(cls, rng, word)
    return least(info)


def _is_other(info: inspect.Type) -> bool:
    return isinstance(info, inspect.StructType) and issubclass(info.cls, Other)
