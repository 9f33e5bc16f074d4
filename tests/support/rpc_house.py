"""The handler, catalogs and surfaces that the scenarios of the RPC are told with.

The handler stands over the basic and the ops catalog. Surface `form` has data
and the basic catalog as its default, `opsui` the ops catalog, `bare` none.
"""

from __future__ import annotations

from typing import Any

from genagent_protocol.rpc import (
    BASIC_CATALOG_ID,
    Body,
    Catalog,
    DataContext,
    Function,
    Rpc,
    RpcError,
    Scope,
    Surface,
    basic_catalog,
    load_catalog,
)
from support.rpc_data import own

OPS_ID = "urn:example:ops:1"
WORLD = own("rpc_renderer_calls.json")


def echo(args: dict[str, Any], _scope: Scope) -> Any:
    """Give back the arguments."""
    return args


def constant(value: object) -> Body:
    """Return a body that always gives *value*."""
    return lambda _args, _scope: value


def raising(failure: BaseException) -> Body:
    """Return a body that always raises *failure*."""

    def body(_args: dict[str, Any], _scope: Scope) -> object:
        raise failure

    return body


def ops_bodies() -> dict[str, Body]:
    """Return the bodies that the ops catalog is described with."""

    def twice(args: dict[str, Any], _scope: Scope) -> object:
        return args["amount"] * 2

    def count(args: dict[str, Any], _scope: Scope) -> object:
        return args["count"]

    return {
        **dict.fromkeys(("echoText", "echoAny", "echoDynamic", "setFlag", "tagged"), echo),
        "double": twice,
        "literalCount": count,
        "ping": constant(None),
        "localOnly": constant("local"),
        "defaultCallers": constant("local"),
        "gatedLocal": constant("opened"),
        "fail": raising(RuntimeError("disk on fire")),
        "failQuietly": raising(RuntimeError("")),
    }


def loaded(document: object, bodies: dict[str, Body] | None = None) -> Catalog:
    """Return the catalog of a document that is right."""
    catalog = load_catalog(document, bodies)
    assert isinstance(catalog, Catalog), catalog
    return catalog


BASIC = basic_catalog()
OPS = loaded(own("ops_catalog_v1_0.json"), ops_bodies())


def handler(*more: Catalog) -> Rpc:
    """Return a new handler over the basic and the ops catalog, and *more*."""
    return Rpc.new([BASIC, OPS, *more])


def catalog_of(*functions: Function, catalog_id: str = "urn:test", version: str = "1.0") -> Catalog:
    """Return a catalog of functions made in code."""
    return Catalog(catalog_id=catalog_id, functions=functions, protocol_version=version)


def surface(name: str, *more: Catalog) -> DataContext:
    """Return the root context of one of the surfaces."""
    described = WORLD["surfaces"][name]
    return DataContext(
        surface=Surface(
            surface_id=name,
            catalogs=(BASIC, OPS, *more),
            data_model=described["dataModel"],
            default_catalog_id=described["defaultCatalogId"],
        )
    )


def form(**data: Any) -> DataContext:
    """Return the root context of surface `form`, with this data instead of its own if given."""
    context = surface("form")
    if not data:
        return context
    return DataContext(
        surface=Surface(
            surface_id="form",
            catalogs=context.surface.catalogs,
            data_model=data,
            default_catalog_id=BASIC_CATALOG_ID,
        )
    )


def renderer_call(
    name: str,
    args: object = None,
    *,
    catalog_id: str | None = OPS_ID,
    surface_id: str | None = None,
    call_id: str = "c-1",
    version: str = "v1.0",
) -> dict[str, Any]:
    """Return an agent's message that calls a renderer function."""
    call: dict[str, Any] = {"@call": name}
    if catalog_id is not None:
        call["catalogId"] = catalog_id
    if args is not None:
        call["args"] = args
    body: dict[str, Any] = {"functionCallId": call_id, "callFunction": call}
    if surface_id is not None:
        body["surfaceId"] = surface_id
    return {"version": version, "callRendererFunction": body}


def nested(name: str, args: object = None, catalog_id: str | None = None) -> dict[str, Any]:
    """Return a call to stand inside of arguments."""
    call: dict[str, Any] = {"@call": name}
    if args is not None:
        call["args"] = args
    if catalog_id is not None:
        call["catalogId"] = catalog_id
    return call


def path(pointer: str) -> dict[str, Any]:
    """Return a binding."""
    return {"@path": pointer}


def value_of(answer: Any) -> Any:
    """Return the value of an answer that has one."""
    body = response_of(answer)
    assert "error" not in body, body
    return body["value"]


def error_of(answer: Any) -> tuple[str, str]:
    """Return code and text of an answer that is an error."""
    body = response_of(answer)
    assert "value" not in body, body
    return body["error"]["code"], body["error"]["message"]


def code_of(answer: Any) -> str:
    """Return the code of an answer that is an error."""
    return error_of(answer)[0]


def response_of(answer: Any) -> dict[str, Any]:
    """Return what stands inside of an answer of either end."""
    kinds = [key for key in answer if key != "version"]
    assert kinds in (["rendererFunctionResponse"], ["agentFunctionResponse"]), answer
    body: dict[str, Any] = answer[kinds[0]]
    return body


def called(outcome: tuple[Rpc, Any] | RpcError) -> tuple[Rpc, Any]:
    """Return the next handler and the message of a call that was not refused."""
    assert not isinstance(outcome, RpcError), outcome
    return outcome


def refusal(outcome: tuple[Rpc, Any] | RpcError) -> RpcError:
    """Return the refusal of a call that was refused."""
    assert isinstance(outcome, RpcError), outcome
    return outcome


def recording(name: str, **options: Any) -> tuple[Function, list[dict[str, Any]]]:
    """Return a function an agent may call, and the list of what it has been called with."""
    seen: list[dict[str, Any]] = []

    def body(args: dict[str, Any], _scope: Scope) -> object:
        seen.append(args)
        return len(seen)

    return Function.made(name, body, **{"allowed_callers": "agentOnly", **options}), seen


def pending_with(rpc: Rpc, *call_ids: str) -> Rpc:
    """Return the handler with these calls pending."""
    for call_id in call_ids:
        rpc, _ = called(
            rpc.call_agent_function("main", {"@call": "lookUp"}, function_call_id=call_id)
        )
    return rpc


def answer(call_id: str, **outcome: Any) -> dict[str, Any]:
    """Return an agent's answer; give `value` or `error`."""
    return {
        "version": "v1.0",
        "agentFunctionResponse": {"functionCallId": call_id, **outcome},
    }
