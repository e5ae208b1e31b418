"""The guard of a loaded model, as the contract has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerolayer.contract import Contract
from zerolayer.errors import InvalidRequest
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.guard.deadline.admission import Admission
from zerolayer.guard.deadline.limits import of_contract
from zerolayer.guard.freshness import Freshness
from zerolayer.guard.guard import Guard
from zerolayer.guard.prompts.encoders import MessageEncoder
from zerolayer.guard.prompts.reader import Reader
from zerolayer.guard.shape import Names, Shape
from zerolayer.model.cost import CostTable
from zerolayer.wire.schema import Message

if TYPE_CHECKING:
    from zerolayer.model.load import LoadedModel


def template_tokens(template: MessageEncoder) -> int:
    """Tokens that the chat template adds around one message; 0 for a model that takes no conversations."""
    try:
        return len(template.encode((Message("user", ""),)))
    except InvalidRequest:
        return 0


def build_guard(
    contract: Contract, loaded: LoadedModel, admission: Admission, cost: CostTable, budgets: Budgets | None = None
) -> Guard:
    """The guard of a loaded model, as the contract has it."""
    info, vocabulary, deadline = loaded.engine.describe(), loaded.vocabulary, contract.deadline
    shape = Shape(
        slot_tokens=info.slot_tokens,
        default_max_tokens=contract.limits.default_max_tokens,
        vocabulary=vocabulary.size,
        longest_piece_bytes=vocabulary.longest_piece_bytes,
        template_tokens=template_tokens(loaded.template),
        bos_id=vocabulary.bos_id,
        add_bos=vocabulary.add_bos,
        truncate=contract.context.overflow == "truncate",
        drop_duplicates=contract.context.drop_duplicate_turns,
    )
    return Guard(
        names=Names(loaded.name, frozenset(contract.model.aliases)),
        reader=Reader(shape, loaded.encoder, loaded.template, loaded.grammars),
        admission=admission,
        cost=cost,
        limits=of_contract(deadline.first_token_ms, deadline.per_token_ms, deadline.default_ms),
        freshness=Freshness(contract.freshness.max_age_ms, contract.freshness.on_stale),
        chunk_tokens=info.chunk_tokens,
        budgets=budgets,
        cores=max(1, info.threads),
    )
