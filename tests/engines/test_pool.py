"""A pool's rules, on an engine whose every outcome is written down beforehand."""

import time

import pytest

from counterprobe.engines import EngineError, InProcess, TaskLost, WorkerPool
from counterprobe.engines.outcomes import Answered, Failed, Lost, Placed, Started


class Scripted:
    """An engine whose workers fail as told; tasks are otherwise answered with their square."""

    name = "scripted"
    start_seconds = task_seconds = None

    def __init__(self, *scripts, attempts=3, num_workers=None):
        self.scripts = list(scripts)
        self.num_workers = num_workers or len(scripts)
        self.attempts = attempts
        self.started = []

    def prepare(self, make):
        return make

    def start_worker(self, prepared):
        script = self.scripts.pop(0) if self.scripts else []
        self.started.append(ScriptedWorker(script))
        return self.started[-1]

    def ready(self, workers, seconds):
        placed = [
            worker for worker in workers if worker.is_placed or worker.script[:1] != ["no room"]
        ]
        ready = [worker for worker in placed if worker.script[:1] != ["hangs"]]
        return ready if seconds == 0 else ready[-1:]  # the last first: order must not matter

    def close(self):
        pass


class ScriptedWorker:
    def __init__(self, script):
        self.script = list(script)
        self.is_placed = False
        self.is_started = False
        self.is_closed = False
        self.tasks = []

    def send(self, task):
        assert not self.is_closed
        self.tasks.append(task)

    def receive(self):
        self.is_placed = True
        if self.script:
            step = self.script.pop(0)
            if step == "lost":
                return Lost("its machine is gone")
            if step == "placed":
                return Placed()
            if isinstance(step, Exception):
                return Failed(step)
        if not self.is_started:
            self.is_started = True
            return Started("hello")
        return Answered(self.tasks[-1] ** 2)

    def close(self):
        self.is_closed = True


def all_done(pool, tasks):
    tickets = {pool.submit(task): task for task in tasks}
    found = {}
    while len(found) < len(tickets):
        for done in pool.wait():
            assert done.ticket not in found
            found[done.ticket] = done.result()
    return {tickets[ticket]: value for ticket, value in found.items()}


def squares(tasks):
    return {task: task**2 for task in tasks}


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_task_is_answered_once_whatever_the_order(workers):
    engine = Scripted(*[[]] * workers)
    with WorkerPool(engine, None) as pool:
        assert all_done(pool, range(20)) == squares(range(20))
        assert pool.num_lost == 0
    assert sum(len(worker.tasks) for worker in engine.started) == 20
    assert all(worker.is_closed for worker in engine.started)


def test_a_lost_task_is_begun_again_elsewhere_and_answered_once():
    engine = Scripted(["placed", "started", "lost"], [], num_workers=2)
    with WorkerPool(engine, None) as pool:
        assert all_done(pool, range(6)) == squares(range(6))
        assert pool.num_lost == 1
    assert sum(len(worker.tasks) for worker in engine.started) == 7
    assert len(engine.started) == 3  # one came in the place of the lost one
    assert engine.started[0].is_closed


def test_a_task_that_loses_every_worker_ends_the_pool():
    lost = ["started", "lost"]
    engine = Scripted(lost, lost, lost, lost, num_workers=1, attempts=3)
    with WorkerPool(engine, None) as pool:
        with pytest.raises(EngineError, match="its machine is gone, 3 times for one task"):
            all_done(pool, [1])
    assert [worker.tasks for worker in engine.started] == [[1], [1], [1]]


def test_what_was_finished_comes_before_a_task_that_is_given_up_and_the_others_after_it():
    class Both(Scripted):
        def ready(self, workers, seconds):
            return list(workers)

    engine = Both([], ["started", "lost"], attempts=1)
    told = []
    with WorkerPool(engine, None, on_loss=told.append) as pool:
        pool.start()
        tickets = [pool.submit(task) for task in (2, 3)]
        (done,) = pool.wait()  # of the first; the second was lost in the same step
        assert (done.ticket, done.result()) == (tickets[0], 4)
        with pytest.raises(TaskLost, match="its machine is gone") as caught:
            pool.wait()
        assert caught.value.ticket == tickets[1]
        assert all_done(pool, range(4)) == squares(range(4))
    assert told == ["its machine is gone"]


def test_a_task_that_is_given_up_can_be_an_outcome_like_others():
    engine = Scripted(["started", "lost"], ["started", "lost"], num_workers=1, attempts=2)
    with WorkerPool(engine, None) as pool:
        ticket = pool.submit(3)
        (done,) = pool.collect()
        assert done.ticket == ticket
        with pytest.raises(TaskLost, match="2 times"):
            done.result()
        assert all_done(pool, [4]) == {4: 16}


def test_a_place_is_filled_again_where_the_job_could_be_made_but_not_for_ever():
    # One that was started for a lost one dies while it starts: another comes.
    engine = Scripted(["started", "lost"], ["lost"], [], num_workers=1)
    with WorkerPool(engine, None) as pool:
        assert all_done(pool, [7]) == {7: 49}
    assert len(engine.started) == 3
    engine = Scripted(["started", "lost"], *[["lost"]] * 9, num_workers=1)
    with WorkerPool(engine, None) as pool:
        with pytest.raises(EngineError, match="no worker is left: its machine is gone"):
            all_done(pool, [7])
    assert len(engine.started) == 4


def test_workers_that_die_before_they_start_are_not_replaced():
    engine = Scripted(["lost"], ["placed", "lost"])
    with WorkerPool(engine, None) as pool:
        with pytest.raises(EngineError, match="no worker is left: its machine is gone"):
            all_done(pool, [1, 2])
    assert len(engine.started) == 2


def test_a_job_that_cannot_be_made_says_so_with_its_own_error():
    with WorkerPool(Scripted([ValueError("no such model")], []), None) as pool:
        with pytest.raises(ValueError, match="no such model"):
            all_done(pool, range(4))


def test_an_error_of_a_task_is_its_outcome_and_the_worker_goes_on():
    with WorkerPool(Scripted(["started", KeyError("x")]), None) as pool:
        first, second = pool.submit(3), pool.submit(4)
        (done,) = pool.wait()
        assert done.ticket == first
        with pytest.raises(KeyError, match="x"):
            done.result()
        (done,) = pool.wait()
        assert (done.ticket, done.result()) == (second, 16)


def test_a_crew_without_room_says_so_when_its_time_is_over():
    engine = Scripted(["no room"])
    engine.start_seconds = 0.05
    with WorkerPool(engine, None) as pool:
        with pytest.raises(EngineError, match=r"no worker could be placed within 0.05 seconds"):
            all_done(pool, [1])


def test_a_crew_starts_without_those_that_have_no_room():
    engine = Scripted(["no room"], [])
    engine.start_seconds = 0.05
    with WorkerPool(engine, None) as pool:
        pool.start()
        assert all_done(pool, range(3)) == squares(range(3))


def test_a_worker_that_hangs_is_ended_and_its_task_begun_elsewhere():
    engine = Scripted(["started", "hangs"], [], [])
    engine.task_seconds = 0.05
    told = []
    with WorkerPool(engine, None, on_loss=told.append) as pool:
        pool.start()
        assert all_done(pool, range(6)) == squares(range(6))
        assert engine.started[0].is_closed
        assert pool.num_lost == 1
    assert told == ["a worker had not answered after 0.05 seconds and was ended"]


def test_a_task_that_hangs_everywhere_ends_with_its_limit_and_the_others_are_done():
    engine = Scripted(*[["started", "hangs"]] * 2, num_workers=1, attempts=2)
    engine.task_seconds = 0.05
    with WorkerPool(engine, None) as pool:
        tickets = [pool.submit(task) for task in (3, 4)]
        with pytest.raises(TaskLost, match=r"after 0.05 seconds and was ended, 2 times") as caught:
            pool.wait()
        assert caught.value.ticket == tickets[0]
        (done,) = pool.wait()
        assert (done.ticket, done.result()) == (tickets[1], 16)


def test_an_answer_that_nobody_looked_at_in_time_is_no_loss():
    engine = Scripted([], [], [])
    engine.task_seconds = 0.05
    with WorkerPool(engine, None) as pool:
        pool.start()
        tickets = {pool.submit(task): task for task in range(3)}
        time.sleep(0.1)
        found = pool.wait()
        assert {tickets[done.ticket]: done.result() for done in found} == squares(range(3))
        assert pool.num_lost == 0


def test_a_worker_may_take_its_time_to_start():
    engine = Scripted(["placed"])
    engine.task_seconds = 0.01
    with WorkerPool(engine, None) as pool:
        time.sleep(0.05)
        assert all_done(pool, [3]) == {3: 9}
        assert pool.num_lost == 0


def test_dropped_tasks_are_not_begun():
    engine = Scripted([])
    with WorkerPool(engine, None) as pool:
        pool.start()
        first, second = pool.submit(5), pool.submit(6)
        pool.forget({first, second})
        (done,) = pool.wait()  # it had begun already
        assert (done.ticket, done.result()) == (first, 25)
    assert engine.started[0].tasks == [5]


def test_a_worker_that_is_not_welcome_is_sent_away():
    engine = Scripted([], [], [])
    seen = []
    with WorkerPool(
        engine, None, lambda declared: seen.append(declared) or len(seen) == 2
    ) as pool:
        assert all_done(pool, range(4)) == squares(range(4))
        assert [worker.is_closed for worker in engine.started] == [True, False, True]
    assert seen == ["hello"] * 3
    with WorkerPool(Scripted([], []), None, lambda declared: False) as pool:
        with pytest.raises(EngineError, match="no worker is left"):
            all_done(pool, [1])


def test_a_worker_whose_greeting_is_an_error_is_ended_with_the_others():
    engine = Scripted([], [])

    def refuse(declared):
        raise ValueError("replicas disagree")

    with (
        pytest.raises(ValueError, match="replicas disagree"),
        WorkerPool(engine, None, refuse) as pool,
    ):
        pool.start()
    assert [worker.is_closed for worker in engine.started] == [True, True]


def test_this_process_works_one_task_at_a_time_and_keeps_errors():
    seen = []

    def make():
        return lambda task: seen.append(task) or 1 / task

    with InProcess() as engine, WorkerPool(engine, make) as pool:
        tickets = [pool.submit(task) for task in (2, 0, 4)]
        assert seen == []
        outcomes = [pool.wait() for _ in tickets]
        assert [done.ticket for (done,) in outcomes] == tickets
        assert seen == [2, 0, 4]
        assert isinstance(outcomes[1][0].error, ZeroDivisionError)
        assert outcomes[2][0].result() == 0.25
