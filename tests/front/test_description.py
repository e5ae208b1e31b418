"""``GET /openapi.json`` describes what the service answers, no more and no less."""

from __future__ import annotations

from echo_service import get, post


def test_every_path_and_method_is_described_and_nothing_else(serve):
    service = serve()
    described = {
        (path.replace("{id}", ""), method.upper())
        for path, operations in service.ask(get("/openapi.json")).json["paths"].items()
        for method in operations
        if method != "parameters"
    }
    table = service.server.tables.service_paths
    assert described == {(path, method) for path, actions in table.items() for method in actions}


def test_bodies_are_described_with_the_contract_s_limits(serve):
    document = serve(section={"max_tokens": 300}).ask(get("/openapi.json")).json
    members = document["components"]["schemas"]["ChatBody"]["properties"]
    assert (members["max_tokens"]["maximum"], members["n"]["maximum"]) == (300, 4)
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/ChatBody"}


def test_the_document_answers_get_only(serve):
    assert serve().ask(post("/openapi.json", {})).status == 405
