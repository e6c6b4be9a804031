"""Ledgers written by hand about time and its excuses: pauses, outages, idle workers, and the causes of deaths."""

from __future__ import annotations

from tests.torture.stories import CHILD, LEASE_US, MS, OTHER, OTHER_PARENT, PARENT, PRODUCER, S, Story, story

SOLO = 12  # a child that runs jobs alone


def lapsed(told: Story) -> Story:
    """Nobody renews, and another takes over."""
    return told.wait(LEASE_US).crash(1, OTHER, guard="lapsed")


def outage(told: Story, seconds: float, how: str = "restart") -> Story:
    """The store goes away and comes back."""
    told.note("NEMESIS", 1, step="start", how=how)
    return told.wait(round(seconds * S)).note("NEMESIS", 1, step="stop", how=how)


def slow_death(dying_us: int, after_us: int) -> Story:
    """A killed child takes so long to be dead, and its supervisor so long to see to its job."""
    told = story().enqueue().claim().start().note("NEMESIS", 1, step="start", how="kill child", pids=(CHILD,)).wait(dying_us)
    told.note("NEMESIS", 1, step="stop", how="kill child", pids=(CHILD,)).wait(after_us)
    return again(told.renew(1, PARENT).crash(), OTHER)


def unheard_renewal(asked: bool, after_us: int) -> Story:
    """A worker is killed before it hears whether its last renewal was granted; its job is taken over so long after its death."""
    told = story().enqueue().claim().start().wait(1_500 * MS)
    if asked:
        told.note("RENEW_TRY", PARENT, job="a", fence=1)
    told.kill(PARENT, CHILD, how="kill worker").wait(after_us)
    return again(told.crash(1, OTHER, guard="lapsed"), OTHER)


def polls(told: Story, seconds: float, pid: int = OTHER) -> Story:
    """Somebody with nothing to do asks twice a second, and gets nothing."""
    for _ in range(round(seconds * 2)):
        told.wait(500 * MS).idle(pid)
    return told


def unheard(told: Story) -> Story:
    """A crash of a job that nobody has noted to have claimed, then success."""
    return told.wait(LEASE_US).crash(1, OTHER, guard="lapsed").run(2, OTHER).row(attempts=2, crashes=1, fence=2)


def again(told: Story, pid: int = CHILD) -> Story:
    """The second execution succeeds."""
    return told.run(2, pid).row(attempts=2, crashes=1, fence=2)


def taken_in_silence(after_us: int) -> Story:
    """A worker dies; so does the child that takes its job over so long after the lease, before it can say so. Much later it is claimed."""
    told = story().enqueue().claim().start().kill(PARENT, CHILD, how="kill worker").wait(LEASE_US + after_us)
    told.settle(1, OTHER, cause="crash", status="pending", guard="lapsed", answer="")
    due = told.store_us
    told.kill(OTHER).wait(4 * S).claim(2, SOLO, due=due).start(2, SOLO).effect(2, SOLO).end(2, SOLO).settle(2, SOLO)
    return told.row(attempts=2, crashes=1, fence=2)


def stopped_before_the_answer(after_us: int) -> Story:
    """A worker dies; who takes its job over so long after the lease is stopped before it hears so, and meanwhile another one runs it."""
    told = story().enqueue().claim().start().kill(PARENT, CHILD, how="kill worker").wait(LEASE_US + after_us)
    facts = {"job": "a", "fence": 1, "cause": "crash", "guard": "lapsed", "gen": 1, "id": "x", "status": "pending"}
    told.note("SETTLE_TRY", OTHER, **facts).pause(OTHER)
    sent, written = told.at, told.store_us
    told.claim(2, SOLO, due=written).start(2, SOLO).effect(2, SOLO).end(2, SOLO).settle(2, SOLO).wait(4 * S)
    told.pause(OTHER, step="stop").note("SETTLE_OK", OTHER, sent=sent, store=written, due=written, **facts)
    return told.row(attempts=2, crashes=1, fence=2)


def died_at_the_start(solo_parent: int) -> Story:
    """A job is handed over to run alone. A child of that supervisor is killed, before or as it starts it, and it is charged a crash."""
    told = story().note("UP", SOLO, parent=solo_parent).enqueue().claim().note("ALONE", PARENT, job="a", fence=1)
    return again(told.kill(SOLO).crash())


def stored_by_a_repeat(told: Story) -> Story:
    """The wire breaks during an insert, which the store repeats by itself: the answer has the time of the repeat."""
    outage(told.note("ENQ_TRY", PRODUCER, job="a"), 0.1, how="reset").idle(OTHER)
    return told.note("ENQ_OK", PRODUCER, job="a", sent=told.at, store=told.store_us, due=told.store_us + 50 * MS).run().row()


def failed_twice_over(told: Story, seconds: float) -> Story:
    """A failure is written and its answer lost; another runs the job to its end; then the first one's repeat is refused."""
    told.settle(cause="failure", status="pending", answer="", settle_id="f")
    outage(told, seconds).renew(1, PARENT) if seconds else told
    told.run(2, OTHER)
    told.note("SETTLE_STALE", CHILD, job="a", fence=1, gen=1, id="f", cause="failure", status="pending", guard="held")
    return told.row(attempts=2, failures=1, fence=2)


def deserted(told: Story) -> Story:
    """A worker dies, and nobody takes its jobs until another one comes up, long after their leases."""
    told.enqueue().claim().start().kill(PARENT, CHILD, how="kill worker").wait(LEASE_US + 3 * S)
    return again(told.note("UP", SOLO, parent=OTHER_PARENT).note("READY", SOLO).crash(1, SOLO, guard="lapsed"), SOLO)


def number_used_again(told: Story) -> Story:
    """A whole worker dies; later the number of its child is another's, under a supervisor that lives."""
    told.enqueue().claim().start().kill(PARENT, CHILD, how="kill worker").wait(LEASE_US + 500 * MS).crash(1, OTHER, guard="lapsed")
    return again(told, OTHER).note("UP", CHILD, parent=OTHER_PARENT)


GOOD_TIMES = {
    "stored by a repeat that was answered with a later time": lambda: stored_by_a_repeat(story()),
    "a number is used again": lambda: number_used_again(story()),
    "written before an outage, and its repeat refused": lambda: failed_twice_over(story().enqueue().claim().start().end(how="error"), 1),
    "taken over by one who died before it could say so": lambda: taken_in_silence(500 * MS),
    "taken over by one who was stopped before it heard so": lambda: stopped_before_the_answer(500 * MS),
    "it was stopped until it started what another had finished": lambda: (
        story().enqueue().claim().pause(CHILD).wait(LEASE_US).crash(1, OTHER, guard="lapsed").run(2, OTHER)
        .pause(CHILD, step="stop").wait(50 * MS).start().end(how="stopped").row(attempts=2, crashes=1, fence=2)
    ),
    "handed over to run alone, and its claimer died": lambda: (
        story().enqueue().claim().note("ALONE", PARENT, job="a", fence=1).kill(CHILD).wait(5 * S).start(1, SOLO).effect(1, SOLO)
        .end(1, SOLO).settle(1, SOLO).row()
    ),
    "handed over to run alone, and its supervisor died": lambda: again(
        lapsed(story().enqueue().claim().note("ALONE", PARENT, job="a", fence=1).wait(S).kill(PARENT, CHILD, how="kill worker").wait(-S)),
        OTHER,
    ),
    "handed over to run alone, and its process died as it started it": lambda: died_at_the_start(PARENT),
    "claimed in the very moment of its death": lambda: again(
        story().enqueue().note("NEMESIS", 1, step="start", how="kill child", pids=(CHILD,)).claim().start()
        .note("NEMESIS", 1, step="stop", how="kill child", pids=(CHILD,)).crash()
    ),
    "a claim that nobody noted, and a kill": lambda: unheard(story().enqueue().kill(PARENT, CHILD, how="kill worker")),
    "a claim that nobody noted, and a pause": lambda: unheard(story().enqueue().pause(PARENT, CHILD)),
    "a claim that nobody noted, and an outage": lambda: unheard(outage(story().enqueue(), 1).idle(OTHER)),
    "the store was away for longer than the lease": lambda: again(outage(story().enqueue().claim(), 3).crash(1, OTHER, guard="lapsed")),
    "wires were cut while a lease ran out": lambda: again(
        lapsed(outage(story().enqueue().claim().start(), 0.1, "reset").idle(OTHER)), OTHER
    ),
    "a machine takes its time to end a killed child": lambda: slow_death(1_500 * MS, 900 * MS),
    "a lease that was renewed by one who died before it heard so": lambda: unheard_renewal(True, LEASE_US + 900 * MS),
    "work goes on two seconds after a cut": lambda: outage(story().enqueue().run().row(), 0.1, "reset").wait(1_900 * MS).idle(OTHER),
    "an idle worker takes it at once": lambda: story().idle(CHILD).enqueue().wait(400 * MS).run().row(),
    "nobody is idle": lambda: story().enqueue().wait(5 * S).run().row(),
    "idle workers were told to end": lambda: story().idle(OTHER).note("STOP", 1).enqueue().wait(5 * S).run().row(),
    "an idle worker has ended": lambda: story().idle(OTHER).note("DOWN", OTHER).enqueue().wait(5 * S).run().row(),
    "an idle worker was ended by its supervisor": lambda: (
        story().idle(OTHER).note("ENDING", OTHER_PARENT, pids=(OTHER,)).enqueue().wait(5 * S).run().row()
    ),
    "an idle worker was killed": lambda: story().idle(OTHER).kill(OTHER).enqueue().wait(5 * S).run().row(),
    "the supervisor of an idle worker was killed": lambda: story().idle(OTHER).kill(OTHER_PARENT).enqueue().wait(5 * S).run().row(),
    "an idle worker was stopped": lambda: (
        story().idle(OTHER).enqueue().pause(OTHER).wait(5 * S).pause(OTHER, step="stop").run(1, OTHER).row()
    ),
    "a handler held the loop of a worker with free slots": lambda: (
        story().enqueue("b").claim(1, OTHER, job="b").idle(OTHER).start(1, OTHER, job="b", how="loop").enqueue().wait(5 * S).run()
        .effect(1, OTHER, job="b").end(1, OTHER, job="b").settle(1, OTHER, job="b").row().row(job="b")
    ),
    "its claim was answered late, while others asked for nothing": lambda: (
        polls(story().idle(OTHER).enqueue().pause(CHILD), 3).pause(CHILD, step="stop").claim(early_us=3 * S)
        .start().effect().end().settle().row()
    ),
    "idle, but the store was away": lambda: outage(story().idle(OTHER).enqueue(), 5).wait(4 * S).run(1, OTHER).row(),
    "the run ended before work could go on": lambda: outage(story().enqueue().run().row(), 5).wait(2 * S).note("STOP", 1).wait(9 * S)
    .note("DOWN", OTHER),
}  # fmt: skip

BAD_TIMES = {
    "stopped before its claim, started long after another's success": (
        {"RERUN"}, lambda: story().enqueue().pause(CHILD).pause(CHILD, step="stop").claim().pause(PARENT).wait(LEASE_US)
        .crash(1, OTHER, guard="lapsed").pause(PARENT, step="stop").run(2, OTHER).start().row(attempts=2, crashes=1, fence=2),
    ),
    "went on for long before it started what another had finished": (
        {"RERUN"}, lambda: story().enqueue().claim().pause(CHILD).wait(LEASE_US).crash(1, OTHER, guard="lapsed").run(2, OTHER)
        .pause(CHILD, step="stop").wait(200 * MS).start().row(attempts=2, crashes=1, fence=2),
    ),
    "only its supervisor was stopped": (
        {"RERUN"}, lambda: story().enqueue().claim().pause(PARENT).wait(LEASE_US).crash(1, OTHER, guard="lapsed").run(2, OTHER)
        .pause(PARENT, step="stop").start().row(attempts=2, crashes=1, fence=2),
    ),
    "renewed for a dead child that had not begun it": (
        {"RECOVER"}, lambda: story().enqueue().claim().kill(CHILD).wait(5 * S).renew(1, PARENT).wait(S)
        .settle(1, PARENT, cause="release", status="pending").run(2).row(attempts=1, releases=1, fence=2),
    ),
    "left in the line of a dead supervisor": (
        {"RECOVER"}, lambda: again(
            story().enqueue().claim().note("ALONE", PARENT, job="a", fence=1).kill(PARENT, CHILD, how="kill worker").wait(LEASE_US + 2 * S)
            .crash(1, OTHER, guard="lapsed"), OTHER,
        ),
    ),
    "claimed in the moment of its death, and left lying": (
        {"RECOVER"}, lambda: again(
            story().enqueue().note("NEMESIS", 1, step="start", how="kill child", pids=(CHILD,)).claim().start()
            .note("NEMESIS", 1, step="stop", how="kill child", pids=(CHILD,)).wait(2 * S).crash(),
        ),
    ),
    "an outage and a pause at the same time are counted once": (
        {"RECOVER"}, lambda: again(
            outage(story().enqueue().claim().start().kill(CHILD).pause(PARENT), 3).pause(PARENT, step="stop").renew(1, PARENT)
            .wait(3 * S).crash(),
        ),
    ),
    "its supervisor was answered again, and let it lie": (
        {"RECOVER"}, lambda: again(outage(story().enqueue().claim().start().kill(CHILD), 3).renew(1, PARENT).wait(3 * S).crash()),
    ),
    "a cut connection excuses a second, not five": (
        {"RECOVER"}, lambda: again(outage(story().enqueue().claim().start().kill(CHILD), 0.1, "reset").wait(3 * S).crash()),
    ),
    "refused, and counted all the same": (
        {"ATTEMPTS"}, lambda: failed_twice_over(story().enqueue().claim().start().end(how="error"), 0)
    ),
    "nobody looked for it": ({"RECOVER"}, lambda: deserted(story())),
    "taken over too late by one who was stopped before it heard so": ({"RECOVER"}, lambda: stopped_before_the_answer(2 * S)),
    "taken over too late by one who died before it could say so": ({"RECOVER"}, lambda: taken_in_silence(2 * S)),
    "a job stays with a dead worker longer than any renewal could have lasted": (
        {"RECOVER"}, lambda: unheard_renewal(True, LEASE_US + 1_100 * MS)
    ),
    "a job stays with a dead worker that had asked for nothing": ({"RECOVER"}, lambda: unheard_renewal(False, LEASE_US)),
    "a job stays with a child that took long to die": ({"RECOVER"}, lambda: slow_death(500 * MS, 1_100 * MS)),
    "work does not go on after an outage": ({"RECOVER"}, lambda: outage(story().enqueue().run().row(), 3).wait(6 * S).renew(1, PARENT)),
    "work does not go on after a cut": (
        {"RECOVER"}, lambda: outage(story().enqueue().run().row(), 0.1, "reset").wait(3 * S).renew(1, PARENT)
    ),
    "an idle worker sleeps on": ({"WAKE"}, lambda: story().idle(OTHER).enqueue().wait(S).claim().idle(OTHER).start().effect().end()
                                 .settle().row()),
    "an idle worker never asks again": ({"WAKE"}, lambda: story().idle(OTHER).enqueue().wait(S).run().row()),
    "an idle worker asks again and again, and gets nothing": (
        {"WAKE"}, lambda: polls(story().idle(OTHER).enqueue(), 3).run().row(),
    ),
    "an idle worker that was answered after an outage sleeps on": (
        {"WAKE"}, lambda: outage(story().idle(OTHER).enqueue(), 3).idle(OTHER).wait(2 * S).run().row(),
    ),
    "a crash of a claim that nobody noted, and nobody was hurt": ({"ATTEMPTS"}, lambda: unheard(story().enqueue())),
    "a crash of a claim that nobody noted, and only a producer was killed": (
        {"ATTEMPTS"}, lambda: unheard(story().enqueue().kill(PRODUCER, how="kill producer")),
    ),
    "a crash, and another's process was killed": ({"ATTEMPTS"}, lambda: again(story().enqueue().claim().kill(OTHER).crash())),
    "a lease that ran out for no reason": ({"ATTEMPTS"}, lambda: again(lapsed(story().enqueue().claim().start().end()), OTHER)),
    "a crash after an outage that was over before the claim": (
        {"ATTEMPTS"}, lambda: again(lapsed(outage(story().enqueue(), 1).claim().start().end()), OTHER),
    ),
    "a crash at once, and only wires were cut": (
        {"ATTEMPTS"}, lambda: again(outage(story().enqueue().claim().start(), 0.1, "reset").crash())
    ),
    "wires that were cut when the lease had run out": (
        {"ATTEMPTS"}, lambda: again(
            outage(story().enqueue().claim().start().wait(LEASE_US + 200 * MS), 0.1, "reset").crash(1, OTHER, guard="lapsed"), OTHER
        ),
    ),
    "a lease that ran out long after its wires were cut": (
        {"ATTEMPTS"}, lambda: again(
            lapsed(outage(story().enqueue().claim().start(), 0.1, "reset").idle(OTHER).renew(1, PARENT).end()), OTHER,
        ),
    ),
    "handed over to run alone, and somebody else's process died": ({"ATTEMPTS"}, lambda: died_at_the_start(OTHER_PARENT)),
    "three crashes, and a kill that came after one of them": (
        {"ATTEMPTS", "STATE"}, lambda: story().enqueue().claim().start().kill(CHILD).crash().claim(2).start(2).kill(CHILD).crash(2)
        .claim(3).start(3).end(3).settle(3, PARENT, cause="crash", status="failed").kill(CHILD)
        .settle(3, PARENT, cause="crash", status="failed", settle_id="another", answer="").row("failed", attempts=3, crashes=3, fence=3),
    ),
}  # fmt: skip
