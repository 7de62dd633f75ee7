"""A compile child that compiles nothing; `behaviour.json` in the checkpoint steers it.

Keys: `steps` and `step_s` (length), `fail` (code), `exit` (status), `signal` (to itself), `hoard_bytes`,
`deaf` (ignores the word stop), `grandchild` (a file for the pid of a process that it starts).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.fake_compiler import write_build
from worker.compile_child import Control, Reporter, claim_stdout, leave, listen
from worker.protocol import Failed, Progress, decode_request


def main() -> None:
    reporter = Reporter(claim_stdout())
    print("this goes to the log, not among the reports")
    request = decode_request(sys.stdin.buffer.readline())
    control = Control()
    threading.Thread(target=listen, args=(sys.stdin.buffer, control), daemon=True).start()
    path = Path(request.checkpoint_dir) / "behaviour.json"
    wanted: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if "grandchild" in wanted:
        sleeper = subprocess.Popen(["sleep", "600"])
        Path(wanted["grandchild"]).write_text(str(sleeper.pid))
    steps = wanted.get("steps", 1)
    for step in range(steps):
        busy = "busy" if control.is_busy() else "idle"
        reporter.say(Progress("search", (step + 1) / steps, f"step {step + 1}, {busy}"))
        time.sleep(wanted.get("step_s", 0.0))
        if control.should_stop() and not wanted.get("deaf"):
            sys.exit(0)
    hoard = os.urandom(1 << 20) * (wanted.get("hoard_bytes", 0) >> 20)
    if hoard:
        time.sleep(600)
    if "signal" in wanted:
        os.kill(os.getpid(), wanted["signal"])
    if "exit" in wanted:
        print("the last words", file=sys.stderr)
        leave(wanted["exit"])
    if "fail" in wanted:
        reporter.say(Failed(wanted["fail"], "told to fail"))
    else:
        reporter.say(write_build(request))
    leave(0)


if __name__ == "__main__":
    main()
