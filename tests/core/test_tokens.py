from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import tokens

RANDOM = bytes(range(32))


@pytest.mark.parametrize("kind", ["sdk", "live"])
def test_a_minted_token_is_read_back_and_verified(kind: str) -> None:
    minted = tokens.mint(kind, RANDOM)
    text = minted.secret.reveal()
    assert tokens.parse(text) == tokens.ParsedToken(kind=kind, id=minted.id)
    assert tokens.verify(text, minted.secret_hash)


def test_a_minted_token_cannot_be_printed() -> None:
    minted = tokens.mint("sdk", RANDOM)
    assert minted.secret.reveal() not in repr(minted)


@given(place=st.integers(0, 79), letter=st.sampled_from("0123456789abcdef_xA "))
def test_a_changed_character_is_noticed_without_asking_anyone(place: int, letter: str) -> None:
    text = tokens.mint("sdk", RANDOM).secret.reveal()
    changed = text[:place] + letter + text[place + 1 :]
    assert (tokens.parse(changed) is None) == (changed != text)


@given(st.text())
def test_any_other_text_is_no_token(text: str) -> None:
    assert tokens.parse(text) is None


def test_an_unknown_id_is_never_verified() -> None:
    assert not tokens.verify(tokens.mint("sdk", RANDOM).secret.reveal(), None)


def test_another_tokens_hash_does_not_verify() -> None:
    other = tokens.mint("sdk", RANDOM[::-1])
    assert not tokens.verify(tokens.mint("sdk", RANDOM).secret.reveal(), other.secret_hash)


@pytest.mark.parametrize(("kind", "random"), [("other", RANDOM), ("sdk", b"short")])
def test_minting_refuses_what_would_make_a_weak_token(kind: str, random: bytes) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        tokens.mint(kind, random)
