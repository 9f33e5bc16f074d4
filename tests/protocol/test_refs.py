"""An identity reads back as what it was, and nothing else reads as an identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genagent_protocol.refs import (
    Address,
    AgentHandle,
    BootId,
    Incarnation,
    MailboxAddress,
    MalformedIdentity,
    RequestRef,
    parse_address,
)

hexadecimal = st.text("0123456789abcdef", min_size=16, max_size=16)
incarnations = st.builds(Incarnation, hexadecimal.map(BootId), st.integers(1, 2**63 - 1))
mailboxes = st.builds(
    MailboxAddress,
    hexadecimal.map(BootId),
    st.integers(1, 2**63 - 1),
    st.integers(0, 10**9 - 1),
)


@given(incarnation=incarnations)
def test_an_incarnation_reads_back(incarnation: Incarnation) -> None:
    """Its text is its route, and the name of its files."""
    assert Incarnation.parse(incarnation.text) == incarnation
    assert str(incarnation) == incarnation.text


@given(incarnation=incarnations, random=st.binary(min_size=16, max_size=16))
def test_a_ref_reads_back_and_is_made_of_all_its_random_bits(
    incarnation: Incarnation, random: bytes
) -> None:
    """People copy it from one terminal to the other."""
    ref = RequestRef.mint(incarnation, random)

    assert RequestRef.parse(ref.text) == ref
    assert str(ref) == ref.text
    assert ref.incarnation == incarnation
    assert bytes.fromhex(ref.token) == random


@given(random=st.binary(max_size=40).filter(lambda drawn: len(drawn) != 16))
def test_a_ref_takes_exactly_sixteen_random_bytes(random: bytes) -> None:
    """Fewer could meet again, more would be cut off silently."""
    with pytest.raises(MalformedIdentity, match="16 random bytes"):
        RequestRef.mint(Incarnation(BootId("0" * 16), 1), random)


@given(address=mailboxes | incarnations)
def test_an_address_reads_back_as_what_it_was(address: Address) -> None:
    """A mailbox never reads as an agent, nor an agent as a mailbox."""
    assert parse_address(address.text) == address
    assert str(address) == address.text


def test_the_first_box_of_a_client_has_no_number() -> None:
    """One mailbox has one text, so that texts can be compared."""
    boot = BootId("0" * 16)

    assert MailboxAddress(boot, 7).text == f"{boot}/7"
    assert MailboxAddress(boot, 7, 2).text == f"{boot}/7.2"


BOOT = "0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        "",
        BOOT,
        f"{BOOT}-",
        f"{BOOT}-0",
        f"{BOOT}-01",
        f"{BOOT}--1",
        f"{BOOT}-1 ",
        f"{BOOT}-1\n",
        f" {BOOT}-1",
        f"{BOOT}-１",
        f"{BOOT.upper()}-1",
        f"{BOOT}0-1",
        f"{BOOT[:-1]}-1",
        f"{BOOT}-{'9' * 20}",
        f"{BOOT}-1-2",
        f"{BOOT}-1-{'a' * 31}",
        f"{BOOT}-1-{'a' * 33}",
        f"{BOOT}-1-{'A' * 32}",
        f"{BOOT}-1-{'g' * 32}",
        f"{BOOT}/",
        f"{BOOT}/0",
        f"{BOOT}/1.",
        f"{BOOT}/1.0",
        f"{BOOT}/1.01",
        f"{BOOT}/1\n",
        f"{BOOT}/1/2",
    ],
)
def test_text_that_is_no_identity_is_refused(text: str) -> None:
    """A mistyped ref must not become another one, and one identity has one spelling."""
    with pytest.raises(MalformedIdentity):
        RequestRef.parse(text)
    with pytest.raises(MalformedIdentity):
        parse_address(text)


@given(text=st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Refs come from command lines."""
    with pytest.raises(MalformedIdentity) as error:
        RequestRef.parse(text)

    assert repr(text) in str(error.value)


def test_lives_of_one_boot_are_ordered_by_their_number() -> None:
    """The later life is the larger one, also past nine."""
    boot = BootId(BOOT)

    assert Incarnation(boot, 9) < Incarnation(boot, 10)


def test_handles_of_two_lives_of_one_name_differ() -> None:
    """A handle is a life, never a name."""
    first = AgentHandle("a", Incarnation(BootId(BOOT), 1), 10, 5, "host:/run")
    second = AgentHandle("a", Incarnation(BootId(BOOT), 2), 10, 5, "host:/run")

    assert first != second
    assert len({first, second}) == 2
