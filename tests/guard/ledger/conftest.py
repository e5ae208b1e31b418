import pytest

from reference.ledger import Wall
from zerolayer.guard.ledger.ledger import Ledger, Rules


@pytest.fixture
def wall():
    return Wall()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def ledger(folder, wall):
    opened = Ledger(folder, wall, Rules(node="node-1", server="0.1"))
    yield opened
    opened.close()
