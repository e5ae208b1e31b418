"""``zerolayer keys``: what a stranger types, and what stays secret."""

from __future__ import annotations

import io
import json
import stat

import pytest

from zerolayer.cli import main
from zerolayer.guard.auth.key_format import parse


@pytest.fixture
def keys(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "new"]) == 0
    return tmp_path / "keys"


def issued(capsys, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["keys", "issue", "--tenant", "acme", *arguments]) == 0
    return capsys.readouterr().out.strip()


def test_new_makes_a_secret_for_its_owner_and_says_what_comes_next(keys, capsys):
    assert stat.S_IMODE((keys / "signing.key").stat().st_mode) == 0o600
    assert main(["keys", "new", "keys2"]) == 0
    assert "zerolayer serve --key-set keys2/keyset.json" in capsys.readouterr().out


def test_issue_prints_the_key_alone_on_stdout(keys, capsys):
    claims = parse(issued(capsys, "--requests-per-minute", "60", "--days", "0").encode()).claims
    assert (claims.tenant, claims.quota.requests_per_minute, claims.expires_s) == ("acme", 60, 0)


def test_show_tells_what_a_key_says_and_never_the_key(keys, capsys, monkeypatch):
    key = issued(capsys, "--model", "m", "--group", "g")
    monkeypatch.setattr("sys.stdin", io.StringIO(key + "\n"))
    assert main(["keys", "show", "-", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["tenant"] == "acme"
    assert key[7:] not in out


@pytest.mark.parametrize("by", ["id", "key"])
def test_revoke_takes_an_id_or_a_key(keys, capsys, by):
    key = issued(capsys)
    key_id = parse(key.encode()).claims.key_id.hex()
    assert main(["keys", "revoke", key_id if by == "id" else key]) == 0
    assert main(["keys", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["revoked"] == [key_id]


def test_a_list_can_be_signed_anew_as_it_is(keys, capsys):
    before = json.loads((keys / "revoked.json").read_text())
    assert main(["keys", "revoke", "--renew"]) == 0
    after = json.loads((keys / "revoked.json").read_text())
    assert (after["serial"], after["keys"]) == (before["serial"] + 1, [])


def test_rotate_keeps_two_signing_keys(keys, capsys):
    for _ in range(3):
        assert main(["keys", "rotate", "--overlap-days", "1"]) == 0
    capsys.readouterr()
    assert main(["keys", "show", "--json"]) == 0
    signers = json.loads(capsys.readouterr().out)["signers"]
    assert [bool(signer["not_after_s"]) for signer in signers] == [False, True]


@pytest.mark.parametrize(
    "arguments",
    [
        ["new"],
        ["issue", "--tenant", "Not A Name"],
        ["issue", "--tenant", "a", "--group", "x" * 13],
        ["issue", "--tenant", "a", "--folder", "nowhere"],
        ["revoke"],
        ["revoke", "sk-zl1-secret"],
        ["show", "sk-zl1-secret"],
    ],
)
def test_wrong_use_is_told_with_a_remedy_and_without_the_key(keys, capsys, arguments):
    capsys.readouterr()
    assert main(["keys", *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("zerolayer: ")
    assert "secret" not in told
