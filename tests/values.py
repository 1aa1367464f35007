"""JSON values for Hypothesis, and how two of them are compared without the help of the code under test."""

import json
from typing import Any

from hypothesis import strategies as st

halves = st.characters(categories=["Cs"])
"""One lone surrogate: what a sender makes of an emoji that it cuts in two (U-8)."""

whole_text = st.text(max_size=8)
text = st.one_of(whole_text, st.text(st.one_of(st.characters(), halves), max_size=8))
"""Short text, lone surrogates included. (Two halves that happen to meet are one character in JSON.)"""

numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(),
    st.sampled_from([2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40]),
    st.floats(allow_nan=False, allow_infinity=False),
)


def nested(words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Give any JSON values whose texts and names are ``words``."""
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, words),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
        max_leaves=6,
    )


anything = nested(text)
whole = nested(whole_text)


def joined(value: Any) -> Any:
    """Give what a JSON reader makes of ``value``: surrogate halves that meet in a text become one character."""
    return json.loads(json.dumps(value))


def canonical(value: Any) -> str:
    """Write a value so that equal texts mean equal JSON values; stricter than that, ``1`` is not ``1.0``."""
    return json.dumps(value, sort_keys=True)
