"""Processes on CPUs meet through gloo; this keeps its event loop from holding their cores."""

import os
import pathlib

import jax

_TASKS = pathlib.Path("/proc/self/task")


def start_backend() -> None:
    """Makes the devices of this process; on CPUs gloo's thread then gives way to all others.

    The thread polls a connection without waiting for as long as another thread has its lock. Where
    both share a core, which is so where a scheduler binds one process to each, that one does not
    run until the kernel takes the core away from the first, 4 ms later, once for every array that
    is reduced. A thread of the batch class is put off at once.
    """
    before = _threads()
    if jax.default_backend() != "cpu":
        return
    # The thread has no name of its own; the others that start here wait or compute.
    for thread in _threads() - before:
        try:
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
        except (ProcessLookupError, PermissionError):
            # It has ended, or a sandbox forbids it: slower, and right.
            continue


def _threads() -> set[int]:
    """Ids of the threads of this process; empty where the system is not Linux."""
    return {int(task.name) for task in _TASKS.iterdir()} if _TASKS.is_dir() else set()
