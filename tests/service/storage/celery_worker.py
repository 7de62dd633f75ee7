"""A worker process for the round trip: runs `candela.compile` by writing the job id to a file."""

from __future__ import annotations

import os
import sys
import time

from storage.queue import COMPILE_QUEUE, COMPILE_TASK, make_celery

app = make_celery(os.environ["CANDELA_REDIS_URL"])


@app.task(name=COMPILE_TASK)
def compile_job(job_id: str) -> str:
    with open(os.environ["CANDELA_TEST_OUTPUT"], "a", encoding="utf-8") as out:
        out.write(job_id + "\n")
    if job_id == "job_slow":
        time.sleep(60)
    return "a result that nobody keeps"


if __name__ == "__main__":
    app.worker_main(
        [
            "worker",
            "--pool=prefork",
            "--concurrency=1",
            "--loglevel=WARNING",
            "-Q",
            COMPILE_QUEUE,
            *sys.argv[1:],
        ]
    )
