# SPDX-License-Identifier: MIT
"""Thread numbers."""

from __future__ import annotations

from ptweave.wrapper.tasks import TaskRegistry


def test_numbers_are_dense_in_order_of_appearance() -> None:
    tasks = TaskRegistry()
    assert [tasks.start(10, 10, 1), tasks.start(10, 11, 2, 10), tasks.start(20, 20, 3, 11)] == [0, 1, 2]
    assert [task.parent_tid for task in tasks.tasks] == [0, 10, 11]


def test_a_live_task_keeps_its_number() -> None:
    tasks = TaskRegistry()
    assert tasks.start(10, 10, 1) == tasks.start(10, 10, 5, 3) == 0
    assert tasks.tasks[0].tsc_start == 1
    assert tasks.tasks[0].parent_tid == 3  # learnt later


def test_a_pid_used_again_is_another_task() -> None:
    tasks = TaskRegistry()
    tasks.start(10, 10, 1)
    tasks.exit(10, 10, 2)
    assert tasks.lookup(10, 10) is None
    assert tasks.start(10, 10, 3) == 1
    assert tasks.lookup(10, 10) == 1
    assert [task.tsc_end for task in tasks.tasks] == [2, 0]


def test_the_end_of_an_unknown_task_is_nothing() -> None:
    tasks = TaskRegistry()
    tasks.exit(1, 1, 1)
    assert tasks.tasks == []


def test_live_tasks_of_a_process() -> None:
    tasks = TaskRegistry()
    tasks.start(10, 10, 1)
    tasks.start(10, 11, 1)
    tasks.start(20, 20, 1)
    tasks.exit(10, 10, 2)
    assert [task.tid for task in tasks.live(10)] == [11]


def test_a_task_that_goes_on_as_another_keeps_its_number() -> None:
    tasks = TaskRegistry()
    tasks.start(10, 10, 1)
    assert tasks.start(10, 11, 2, 10) == 1
    assert tasks.go_on(12, 12, 11)
    assert tasks.lookup(12, 12) == tasks.start(12, 12, 3) == 1 and tasks.lookup(10, 11) is None
    tasks.exit(10, 11, 4)  # the end of what it was is not its end
    assert tasks.lookup(12, 12) == 1 and tasks.tasks[1].tsc_end == 0
    assert tasks.tasks[1].parent_tid == 10


def test_a_task_whose_end_is_known_can_go_on() -> None:
    tasks = TaskRegistry()
    tasks.start(10, 11, 1)
    tasks.exit(10, 11, 2)
    assert tasks.go_on(12, 12, 11) and tasks.lookup(12, 12) == 0


def test_what_was_never_there_does_not_go_on() -> None:
    tasks = TaskRegistry()
    assert not tasks.go_on(12, 12, 11)
    assert tasks.start(12, 12, 1) == 0


def test_of_tasks_that_say_hello_only_one_that_is_not_known_is_looked_for() -> None:
    """Looking costs as much as there are processes: a thousand hellos read together must not look a thousand times."""
    tasks, looked = TaskRegistry(), []

    def look() -> None:
        looked.append(len(tasks.tasks))
        for tid in range(10, 20):
            tasks.start(10, tid, tid, 9)

    assert [tasks.greeted(10, tid, 100, look) for tid in range(10, 20)] == list(range(10))
    assert looked == [0] and {task.parent_tid for task in tasks.tasks} == {9}
    tasks.exit(10, 15, 101)
    assert tasks.greeted(10, 15, 100, look) == 10 and looked == [0, 10]  # its number is used again
    assert tasks.greeted(7, 7, 100, look) == 11  # no engine knows it


def test_a_task_that_ended_before_its_hello_was_read_is_known() -> None:
    tasks = TaskRegistry()
    tasks.start(10, 11, 1)
    tasks.exit(10, 11, 2)
    assert tasks.greeted(10, 11, 1, lambda: None) == 0
