"""The document and the code say the same: no message without its row, no row without its code."""

from __future__ import annotations

import re
import typing
from typing import Any

import pytest

from genagent_protocol import bounds, codec, envelopes, header, plain, reasons, refs, schema
from genagent_protocol.schema import tag_of
from genagentd import outbox, socket_path
from genagentd.daemon import switchboard
from support.wire_spec import (
    FAMILIES,
    SPEC,
    Row,
    chapter,
    hearers,
    records,
    rows_of,
    sections,
    table,
)
from support.wire_values import ENVELOPES, hints_of, members

RECORDS = {tag_of(record): record for record in records()}
SECTIONS = sections()
CORE = ("ping", "pong", "core_status", "core_state", "core_stop", "stopping")


@pytest.mark.parametrize("tag", RECORDS)
def test_every_record_has_its_table_and_every_field_its_row(tag: str) -> None:
    """A new message or field without its row does not land."""
    section = SECTIONS.get(tag)

    assert section is not None, f"SPEC.md has no section for {tag}"
    assert section.rows == rows_of(RECORDS[tag])
    assert all(section.meanings)
    assert bool(section.rows) != ("No fields." in section.text)


def test_the_document_describes_nothing_that_is_gone() -> None:
    """A row that outlives its message misleads whoever writes another implementation."""
    assert set(SECTIONS) == set(RECORDS)


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_who_may_hear_a_message_is_what_its_section_says(envelope: type) -> None:
    """The three unions are the arrows of the document."""
    section = SECTIONS[tag_of(envelope)]

    assert {receiver for _, receiver in section.ways} == hearers(envelope)


def test_what_the_switchboard_hands_on_is_what_the_document_lets_through() -> None:
    """It lets pass by the header's kind alone, so that list is a part of the wire."""

    def said_by(one: str, *others: str) -> set[str]:
        return {
            tag
            for tag, section in SECTIONS.items()
            if any((one, other) in section.ways for other in others)
        }

    assert said_by("client", "agent") == switchboard.CLIENT_SAYS
    assert said_by("agent", "client", "agent") | {"batch"} == switchboard.AGENT_SAYS


def test_what_a_client_believes_of_an_agent_is_what_an_agent_may_say_to_it() -> None:
    """Everything else on that connection is the daemon's."""
    assert {tag_of(envelope) for envelope in members(envelopes.FromAgent)} == {
        tag for tag, section in SECTIONS.items() if ("agent", "client") in section.ways
    }


@pytest.mark.parametrize(
    ("title", "family"),
    [
        ("Requests", members(FAMILIES["daemon request"]) + members(FAMILIES["agent request"])),
        ("Answers", members(FAMILIES["answer"])),
    ],
)
def test_a_family_stands_in_its_own_chapter(title: str, family: tuple[Any, ...]) -> None:
    """A reader who looks for what may be answered finds all of it in one place."""
    there = re.findall(r"^#### `(\w+)`$", chapter(title), flags=re.M)

    assert set(there) == {tag_of(record) for record in family}


def test_every_failure_stands_among_the_reasons() -> None:
    """With how starts and lives end beside them."""
    there = set(re.findall(r"^#### `(\w+)`$", chapter("Reasons"), flags=re.M))

    failures = {tag_of(record) for record in members(FAMILIES["failure"])}
    assert there == failures | {"exit_reason", "start_error"}


@pytest.mark.parametrize(
    ("column", "codes"),
    [
        ("code", typing.get_args(reasons.Code)),
        ("start error", typing.get_args(hints_of(reasons.StartError)["kind"])),
    ],
)
def test_every_code_has_its_row(column: str, codes: tuple[str, ...]) -> None:
    """Callers branch on codes, so each is documented, and in the order of the code."""
    rows = table(chapter("Reasons"), column)

    assert tuple(code.strip("`") for code, _ in rows) == codes
    assert all(meaning for _, meaning in rows)


def test_every_end_has_its_row() -> None:
    """An end is text with a form; the code lists the forms in one place."""
    documented = {end.strip("`") for end, _ in table(chapter("Reasons"), "end")}

    listed = (reasons.ExitReason.__doc__ or "").split(" is one of ")[1].split(". `detail`")[0]
    assert documented == set(re.findall(r"`([^`]+)`", listed))


def test_the_version_is_the_one_the_code_speaks() -> None:
    """A change of one without the other is a mistake."""
    spoken = re.search(r"^Version \*\*(\d+)\*\*", SPEC.read_text(encoding="utf-8"), flags=re.M)

    assert spoken is not None
    assert int(spoken[1]) == envelopes.MAX_VERSION
    assert [int(row[0]) for row in table(chapter("Changes"), "version")] == list(
        range(1, envelopes.MAX_VERSION + 1)
    )
    assert all(1 <= section.since <= envelopes.MAX_VERSION for section in SECTIONS.values())


def test_the_header_has_exactly_the_documented_keys() -> None:
    """It is all that a switchboard in another language has to write."""
    full = header.Header("k", "t", "f", "must_keep", "r", 1, 2, 3, 4, 5, True, 6)
    written = codec.unpack_map(header.encode_header(full))

    documented = table(chapter("The header"), "key")
    assert [row[0].strip("`") for row in documented] == [
        *("v", "kind", "to", "from", "class", "ref", "seq", "bodies", "size"),
        *("answers", "behind"),
    ]
    assert {row[0].strip("`") for row in documented} == set(written)


def test_every_limit_is_the_one_the_code_keeps() -> None:
    """A number in two places is right in one of them, sooner or later."""
    client, agent = switchboard.CLIENT_CAPACITY, switchboard.AGENT_CAPACITY
    kept = {
        "bytes of a frame": bounds.MAX_FRAME_BYTES,
        "bytes of a header": header.MAX_HEADER_BYTES,
        "messages of a body": codec.MAX_ENVELOPES,
        "bytes of a prompt, a notification or an event": codec.MAX_PAYLOAD_BYTES,
        "levels of a plain value": plain.MAX_DEPTH,
        "items of a list or map": plain.MAX_ITEMS,
        "characters of a key": plain.MAX_KEY_CHARS,
        "characters of a type's name": schema.MAX_TAG_CHARS,
        "bytes of a socket path": socket_path.MAX_PATH_BYTES,
        "bytes on their way to a peer without its credit": outbox.WINDOW_BYTES,
        "bytes that a message counts beyond its body": outbox.MESSAGE_COST_BYTES,
        "bytes that must be kept for a client": client.max_bytes,
        "droppable bytes that wait for a peer": client.max_droppable_bytes,
        "messages that wait for an agent": agent.max_messages,
        "bytes that wait for an agent": agent.max_bytes,
    }

    assert {what: int(most) for what, most in table(chapter("Limits"), "limit")} == kept
    assert agent.max_droppable_bytes == client.max_droppable_bytes


@pytest.mark.parametrize(
    ("form", "example"),
    [
        ("boot", "0123456789abcdef"),
        ("incarnation", "0123456789abcdef-12"),
        ("ref", f"0123456789abcdef-12-{'0' * 32}"),
        ("mailbox", "0123456789abcdef/12.3"),
    ],
)
def test_identities_have_the_documented_forms(form: str, example: str) -> None:
    """The forms are what people copy and other languages build."""
    documented = {row[0]: row[1] for row in table(chapter("Identities"), "identity")}
    forms = {
        "incarnation": refs.Incarnation.parse,
        "ref": refs.RequestRef.parse,
        "mailbox": refs.MailboxAddress.parse,
    }

    assert form in documented
    if form in forms:
        assert str(forms[form](example)) == example


@pytest.mark.parametrize("tag", CORE)
def test_the_core_has_no_defaults_that_could_ever_differ(tag: str) -> None:
    """It is read by every version: what is left out must mean the same for ever."""
    defaults = {row.default for row in rows_of(RECORDS[tag])}

    assert defaults <= {"", "false"}
    assert Row("call", "int", "") in rows_of(RECORDS[tag])
