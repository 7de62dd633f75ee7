"""A process that appends events to a ledger for ever and prints the number of each one that was committed."""

from __future__ import annotations

import sys
from itertools import count

from storage.db import Database
from storage.ledger import append
from storage.records import Meter, UsageEvent

url, tenant_id, name = sys.argv[1:]
database = Database(url)
for number in count(1):
    event = UsageEvent(
        tenant_id, f"{name}_{number}", Meter.PROMPT_TOKENS, 10, "list-1", "chat", 1_700_000_000.0
    )
    with database.write() as conn:
        append(conn, event)
    print(number, flush=True)
