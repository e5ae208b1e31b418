"""The public files: who may change what counts, and that a bad file changes nothing."""

from __future__ import annotations

import stat

import pytest

from zerolayer.errors import StartupError, UsageError
from zerolayer.guard.auth.key_files import KEY_SET, REVOKED, SIGNING, KeyFiles
from zerolayer.guard.auth.key_set import encode, read_key_set
from zerolayer.guard.auth.signing import KeyFolder, Wish

NOW = 1_800_000_000


@pytest.fixture
def folder(tmp_path):
    made = KeyFolder(tmp_path / "keys")
    made.create(NOW)
    return made


def opened(folder: KeyFolder, root: bytes | None = None) -> KeyFiles:
    return KeyFiles(folder.folder / KEY_SET, folder.folder / REVOKED, root)


def test_the_signing_key_is_for_its_owner_only(folder):
    assert stat.S_IMODE((folder.folder / SIGNING).stat().st_mode) == 0o600


def test_a_signing_key_that_others_can_read_is_not_used(folder):
    (folder.folder / SIGNING).chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        folder.issue(Wish("a", 0), NOW)


def test_keys_that_are_there_are_never_written_over(folder):
    with pytest.raises(UsageError, match="exists"):
        folder.create(NOW)


def test_a_change_is_seen_once(folder):
    files = opened(folder)
    now = files.open()
    assert not files.changed()
    folder.revoke(["0" * 32], [], NOW, NOW)
    assert files.changed()
    assert not files.changed()
    assert files.newer(now).revocations.keys == ("0" * 32,)


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"version": 2}', b"\xff\xfe", b"[" * 10_000])
def test_a_damaged_list_changes_nothing(folder, data):
    files = opened(folder)
    now = files.open()
    (folder.folder / REVOKED).write_bytes(data)
    assert files.newer(now) is None


def test_a_deleted_list_changes_nothing_and_keeps_a_server_from_starting(folder):
    files = opened(folder)
    now = files.open()
    (folder.folder / REVOKED).unlink()
    assert files.newer(now) is None
    with pytest.raises(StartupError, match="cannot be read"):
        opened(folder).open()


def test_an_older_list_brings_no_revoked_key_back(folder):
    before = (folder.folder / REVOKED).read_bytes()
    folder.revoke(["0" * 32], [], NOW, NOW)
    files = opened(folder)
    now = files.open()
    (folder.folder / REVOKED).write_bytes(before)
    assert files.newer(now) is None


def test_a_list_is_not_believed_that_was_changed_by_hand(folder):
    path = folder.folder / REVOKED
    folder.revoke(["a" * 32], [], NOW, NOW)
    path.write_bytes(path.read_bytes().replace(b"a" * 32, b"b" * 32))
    with pytest.raises(StartupError, match="not signed"):
        opened(folder).open()


def test_a_key_set_of_another_root_is_not_believed(folder, tmp_path):
    files = opened(folder)
    now = files.open()
    other = KeyFolder(tmp_path / "other")
    other.create(NOW)
    for name in (KEY_SET, REVOKED):
        (folder.folder / name).write_bytes((other.folder / name).read_bytes())
    assert files.newer(now) is None
    with pytest.raises(StartupError, match="not signed"):
        opened(folder, now.key_set.root).open()


def test_unknown_members_and_a_third_signing_key_are_refused(folder):
    text = (folder.folder / KEY_SET).read_bytes()
    with pytest.raises(StartupError, match="damaged"):
        read_key_set(text.replace(b'"epoch"', b'"more": 1, "epoch"'))
    key_set = read_key_set(text)
    with pytest.raises(StartupError, match="damaged"):
        read_key_set(encode(type(key_set)(1, 2, key_set.root, key_set.keys * 3, (), b"")))
