"""Tasks and suites of tasks by name. Imports neither jax nor TensorFlow."""

from experiments.downstream.embedded import EMBEDDED
from experiments.downstream.glue import GLUE
from experiments.downstream.instructions import SNI
from experiments.downstream.superglue import SUPERGLUE
from experiments.downstream.task import Task
from models.errors import UserError, did_you_mean

TASKS = {task.name: task for task in (*GLUE, *SUPERGLUE, *EMBEDDED, SNI)}
# ViT's task, whose images are read as those of pre-training are.
DIGITS = "digits"


def find_task(name: str) -> Task:
    """Returns a task. Raises UserError for an unknown name."""
    if name not in TASKS:
        raise UserError(
            f"data.task={name}: no such task.{did_you_mean(name, TASKS)} One of {', '.join(TASKS)}."
        )
    return TASKS[name]


def names_of(asked: str) -> list[str]:
    """Returns the tasks that `glue`, `glue/cola`, `glue/cola,glue/rte` or `digits` stand for.

    Raises UserError for an unknown name.
    """
    suites: dict[str, list[str]] = {}
    for name in TASKS:
        suites.setdefault(name.partition("/")[0], []).append(name)
    found: list[str] = []
    for part in asked.split(","):
        if part == DIGITS:
            found.append(DIGITS)
        elif part in suites:
            found += suites[part]
        elif part in TASKS:
            found.append(part)
        else:
            known = [*suites, *TASKS, DIGITS]
            raise UserError(
                f"--task {part}: no such task.{did_you_mean(part, known)} Suites: "
                f"{', '.join(suites)}; tasks: {', '.join([*TASKS, DIGITS])}."
            )
    return found
