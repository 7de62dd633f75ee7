"""The real scheduler process with replicas that have no model; set up by environment, as `scheduler.main`.

Arguments, if any, are the command that runs a replica.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from common.logs import configure_logging
from scheduler.events import StopAsked
from scheduler.main import build
from scheduler.settings import SchedulerSettings, replica_environment

_FAKE = Path(__file__).with_name("fake_replica.py")


def main() -> None:
    configure_logging("scheduler")
    settings = SchedulerSettings()
    environment = replica_environment(dict(os.environ))
    program = sys.argv[1:] or [sys.executable, "-P", "-S", str(_FAKE)]
    scheduler = build(settings, environment, *program)
    signal.signal(signal.SIGTERM, lambda *_: scheduler.loop.events.put(StopAsked()))
    try:
        scheduler.run()
    finally:
        scheduler.close(settings.stop_grace_s)


if __name__ == "__main__":
    main()
