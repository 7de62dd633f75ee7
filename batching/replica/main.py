"""The serving process: `python -m batching.replica.main`. Imports little: each cold start waits for it."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from batching.replica.loading import Load, load_artifact
from batching.replica.logs import configure_logging
from batching.replica.phases import Phases, process_age_s
from batching.replica.process import ReplicaProcess
from batching.replica.settings import ReplicaSettings, read_settings
from common.errors import InvalidInput

_SWITCH_S = 0.0005


def main() -> None:
    """Serve as the command line says; exit 0 after a drain, 1 after a failure, 2 when misused."""
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    sys.exit(serve(settings))


def serve(settings: ReplicaSettings, load: Load = load_artifact) -> int:
    """Run one replica until it is told to go; the exit code. `load` brings in the model.

    Side effects: configures logging, handles SIGTERM and SIGINT, and shortens the interval at which threads
    take turns, so that the engine's thread, coming back from a step, does not wait 5 ms for the server's.
    """
    phases = Phases(time.perf_counter)
    phases.add("import", process_age_s())
    configure_logging(settings.replica_id)
    sys.setswitchinterval(_SWITCH_S)
    return asyncio.run(ReplicaProcess(settings, load, phases).run())


if __name__ == "__main__":
    main()
