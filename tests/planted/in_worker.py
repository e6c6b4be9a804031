"""Bugs in the worker's loops."""

from __future__ import annotations

from tests.planted.bug import Bug

FETCHER, EXECUTOR, COMMITTER = "worker/fetcher.py", "worker/executor.py", "worker/committer.py"
KEEPER, SWEEPER, SCHEDULER, WORKER_FILE = "worker/keeper.py", "worker/sweeper.py", "worker/scheduler.py", "worker/worker.py"

WORKER = (
    Bug(
        "a claim whose answer was lost is sent under a new id",
        "A29",
        FETCHER,
        "claimed = await self._near.claim(claim_id, self._worker,",
        "claimed = await self._near.claim(new_id(self._time.now_us()), self._worker,",
    ),
    Bug(
        "a claim that fails ends the fetcher's work",
        "C15 D2",
        FETCHER,
        "await self._health.failed(error)\n        self._health.ok()",
        "await asyncio.sleep(10**6)\n        self._health.ok()",
    ),
    Bug(
        "an idle fetcher waits for hints alone", "C4 C15", FETCHER, "await self._listener.wait(sleep_s)", "await self._listener.wait(10**6)"
    ),
    Bug(
        "a success whose write fails counts as a failure",
        "E9 B2",
        COMMITTER,
        "if error.retryable:\n                    await self._health.failed(error)\n                    continue",
        "if False:\n                    continue",
    ),
    Bug(
        "an outcome whose write fails is given up",
        "B2 D5",
        COMMITTER,
        "await self._health.failed(error)\n                    continue",
        "return",
    ),
    Bug(
        "an outcome is repeated under a new id",
        "A2 B2",
        COMMITTER,
        "verdicts = await self._near.settle([change for change, _ in batch])",
        "again = [type(one)(**{name: getattr(one, name) for name in one.__struct_fields__ if name != 'settle_id'},"
        " settle_id=f'{one.settle_id}:{asyncio.get_running_loop().time()}') for one, _ in batch]\n"
        "                verdicts = await self._near.settle(again)",
    ),
    Bug("a lost lease does not stop the run", "A1 C8", WORKER_FILE, 'self.executor.stop_run(run, "lost")', "pass"),
    Bug("a cancel wish does not reach the run", "C18 C20", WORKER_FILE, 'self.executor.stop_run(run, "cancel")', "pass"),
    Bug(
        "a lost run keeps its slot for ever",
        "D9",
        EXECUTOR,
        "self._holdings.drop(run)\n            self.busy -= 1\n            return",
        "self._holdings.drop(run)\n            return",
    ),
    Bug(
        "leases are not renewed",
        "A9 C10",
        KEEPER,
        "renewals = await self._store.renew(self._holdings.grips(), self._lease_us, self._describe())",
        "renewals = await self._store.renew([], self._lease_us, self._describe())",
    ),
    Bug(
        "the keeper gives up after one error",
        "B1",
        KEEPER,
        "pause_s = min(RETRY_S, pause_s)\n            except Exception:",
        "return\n            except Exception:",
    ),
    Bug(
        "waiting outcomes are not renewed any more",
        "B2",
        EXECUTOR,
        "self.accepted += 1",
        "self._holdings.drop(run)\n        self.accepted += 1",
        ("tests/worker/test_leases.py",),
    ),
    Bug("nobody sweeps", "C10 E13 A3", SWEEPER, "jobs = await self._store.overdue(SWEEP_BATCH_MAX)", "jobs: list[Job] = []"),
    Bug(
        "a sweeper gives back what had started, uncounted",
        "A14 B1",
        SWEEPER,
        'outcome = LeaseLost(f"the lease of {job.lease_owner} ran out")',
        'from mulligan.core.outcome import Released\n                outcome = Released("swept")  # type: ignore[assignment]',
    ),
    Bug("a time-out is not kept", "C20 E27", EXECUTOR, 'self.stop_run(run, "timeout")', "pass"),
    Bug(
        "a time-out gives the job back uncounted",
        "C20",
        EXECUTOR,
        'if run.stop == "timeout" and stopped:',
        'if run.stop == "timeout" and stopped:\n            return Released("timed out")\n        if False:',
    ),
    Bug(
        "a cancelled run counts as a failure",
        "D7 E10",
        EXECUTOR,
        'if run.stop == "cancel":\n            return CancelObeyed("cancelled while it ran")',
        'if False:\n            return CancelObeyed("")',
    ),
    Bug(
        "a shutdown counts as a failure",
        "A33 D7",
        EXECUTOR,
        'return None if isinstance(error, ThreadAbandoned) else Released("the worker shut down")',
        "return self._classify(run, RuntimeError('shut down'))",
    ),
    Bug(
        "unstarted jobs are forgotten at shutdown",
        "A33 D5",
        WORKER_FILE,
        "for run in self.executor.take_unstarted():\n            await",
        "for run in self.executor.take_unstarted()[:0]:\n            await",
        ("tests/worker/test_shutdown.py",),
    ),
    Bug(
        "an unknown task fails",
        "E14 C13",
        EXECUTOR,
        'return Released(f"this worker does not know the task {job.task!r}", UNKNOWN_TASK_DELAY_US)',
        'return self._classify(run, Fail("unknown task"))',
        ("tests/worker/test_executor.py", "tests/worker/test_hard_cases.py"),
    ),
    Bug(
        "an expired job is run",
        "E4",
        EXECUTOR,
        "if job.max_age_us is not None and now_us >= job.due_first_us + job.max_age_us:",
        "if False:",
        ("tests/worker/test_executor.py", "tests/worker/test_hard_cases.py"),
    ),
    Bug(
        "a schedule fires each tick it has missed, one after the other",
        "E20",
        "core/schedule.py",
        'if schedule.missed == "all":',
        "if True:",
        ("tests/core/test_schedule.py",),
    ),
    Bug(
        "the next tick follows from now",
        "E17 E19 E26",
        "core/schedule.py",
        "return [newest], newest + interval",
        "return [newest], now_us + interval",
        ("tests/core/test_schedule.py",),
    ),
    Bug(
        "an unstorable outcome blocks all others",
        "A31 E21",
        COMMITTER,
        "if len(batch) > 1:\n            middle",
        "if False:\n            middle",
        ("tests/worker/test_committer.py", "tests/worker/test_hard_cases.py"),
    ),
    Bug(
        "a worker takes claims of an earlier one with its name",
        "C6",
        "worker/settings.py",
        "{unique[-8:]}",
        "x",
        ("tests/worker/test_shutdown.py",),
    ),
    Bug(
        "only ordinary errors of a handler are outcomes",
        "C12 D7 E10",
        EXECUTOR,
        "except BaseException as error:  # noqa: BLE001 - every way out of a handler is an outcome",
        "except Exception as error:",
        ("tests/worker/test_executor.py::test_p03_no_handler_error_ends_the_worker",),
    ),
    Bug(
        "outcomes gather without end",
        "D8",
        COMMITTER,
        "if len(self._buffer) >= self._buffer_max:",
        "if False:",
        ("tests/worker/test_bounds.py",),
    ),
    Bug(
        "a requeue is told as a new job",
        "C16",
        "core/events.py",
        'return [("REQUEUED", {"generation"',
        'return [("ENQUEUED", {"generation"',
        ("tests/core/test_events.py", "tests/conformance/test_requeue.py"),
    ),
)
