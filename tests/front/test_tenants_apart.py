"""What one tenant's requests leave behind, in caches and ledger, is nobody else's; a sharing group is one by choice."""

from __future__ import annotations

import time

import pytest
from echo_service import chat

from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.auth.signing import Wish
from zerolayer.guard.identity import Quota
from zerolayer.guard.ledger.record import Entry
from zerolayer.guard.ledger.segment import Chain


@pytest.fixture
def service(serve, keys, tmp_path):
    return serve(
        key_set=str(keys.folder / KEY_SET), ledger=str(tmp_path / "ledger"), sections={"cache": {"answers_mb": 1}}
    )


@pytest.fixture
def ask(service, keys):
    """Ask a fixed question as a tenant; the headers of the reply."""

    def ask(tenant, group=""):
        key = keys.issue(Wish(tenant, 0, group=group), int(time.time()))[0]
        return service.ask(chat("hello", f"authorization: Bearer {key}", temperature=0)).headers

    return ask


def test_a_kept_answer_is_found_by_all_keys_of_its_tenant_and_by_no_other_tenant(ask):
    told = [ask(tenant)["x-zl-cache"] for tenant in ("bank", "bank", "shop", "shop")]
    assert told == ["miss", "hit", "miss", "hit"]


def test_a_sharing_group_is_found_across_its_tenants_and_not_outside(ask):
    told = [ask(tenant, group)["x-zl-cache"] for tenant, group in (("bank", "us"), ("shop", "us"), ("bank", ""))]
    assert told == ["miss", "hit", "miss"]


def test_prompts_are_kept_under_the_salt_of_tenant_or_group(service, ask):
    salts = []
    opened = service.engine.open
    service.engine.open = lambda slot, generation: (salts.append(generation.salt), opened(slot, generation))[1]
    ask("bank")
    ask("shop")
    ask("shop", "us")
    assert len(set(salts)) == 3
    assert all(salts)


def test_the_ledger_says_whose_each_request_was(ask, tmp_path):
    ask("bank")
    ask("shop")
    records = [link.record() for link in Chain(tmp_path / "ledger")]
    found = [record for record in records if isinstance(record, Entry)]
    assert [record.tenant for record in found] == [b"bank", b"shop"]
    assert len({record.key_id for record in found}) == 2
    assert all(any(record.key_id) for record in found)


def test_without_a_key_nothing_is_recorded(service, tmp_path):
    assert service.ask(chat("hello")).status == 401
    assert not any(isinstance(link.record(), Entry) for link in Chain(tmp_path / "ledger"))


def test_a_kept_answer_counts_as_a_request_of_its_limit(service, keys):
    key = keys.issue(Wish("bank", 0, Quota(requests_per_minute=2)), int(time.time()))[0]
    asked = chat("hello", f"authorization: Bearer {key}", temperature=0)
    assert [service.ask(asked).status for _ in range(3)] == [200, 200, 429]
