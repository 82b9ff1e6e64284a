"""`--set path=value`: replaces one field of a nested frozen configuration."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from models.errors import UserError

Config = TypeVar("Config")


class NotInThisConfig(UserError):
    """The path names a field that this configuration lacks, though another one may have it."""


def apply_overrides(config: Config, assignments: Sequence[str]) -> Config:
    """Returns `config` with every `path=value` applied.

    Values are read by the type of the field: `true`/`false`, numbers (`1e-3`, `1_000`), text,
    `none` where the field allows it, and comma-separated lists for tuples.

    Raises:
      UserError: a path that does not exist, is set twice or lies below None, or a value of another
        type.
    """
    seen: set[str] = set()
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        path = path.strip()
        if not equals or not path:
            raise UserError(
                f"--set {assignment}: write path=value, as in --set train.batch_size=8."
            )
        if path in seen:
            raise UserError(f"--set {assignment}: {path} is set twice.")
        seen.add(path)
        config = _replace(config, path.split("."), text.strip(), assignment, config)
    return config


def _replace(config: Any, path: list[str], text: str, assignment: str, root: Any) -> Any:
    name, rest = path[0], path[1:]
    types_by_name = typing.get_type_hints(type(config))
    if name not in types_by_name:
        raise NotInThisConfig(
            f"--set {assignment}: no field {name}.{_nearest_path(root, assignment)}"
        )
    value, annotation = getattr(config, name), types_by_name[name]
    if not rest:
        if dataclasses.is_dataclass(value):
            fields = ", ".join(field.name for field in dataclasses.fields(value))
            raise UserError(
                f"--set {assignment}: {name} is a group; set one of its fields: {fields}."
            )
        return dataclasses.replace(config, **{name: _parse(text, annotation, assignment)})
    if value is None and (group := _optional_group(annotation)):
        value = group()
    if value is None:
        raise NotInThisConfig(
            f"--set {assignment}: {name} is None in {getattr(root, 'name', 'this experiment')}; "
            f"start from an experiment that has it (--list shows all)."
        )
    if not dataclasses.is_dataclass(value):
        raise UserError(f"--set {assignment}: {name} has no fields; it is {value!r}.")
    return dataclasses.replace(config, **{name: _replace(value, rest, text, assignment, root)})


def _optional_group(annotation: Any) -> Any:
    """The group's class where the command line may start it from its defaults, else None."""
    options = [option for option in typing.get_args(annotation) if option is not type(None)]
    startable = len(options) == 1 and getattr(options[0], "FROM_COMMAND_LINE", False)
    return options[0] if startable else None


def _parse(text: str, annotation: Any, assignment: str) -> Any:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        options = typing.get_args(annotation)
        if type(None) in options and text.lower() == "none":
            return None
        annotation = next(option for option in options if option is not type(None))
    if typing.get_origin(annotation) is tuple:
        item = typing.get_args(annotation)[0]
        return tuple(_parse(part.strip(), item, assignment) for part in text.split(",") if part)
    if annotation is bool:
        if text.lower() not in ("true", "false"):
            raise UserError(f"--set {assignment}: {text!r} is not true or false.")
        return text.lower() == "true"
    if annotation in (int, float):
        kind = "a whole number" if annotation is int else "a number"
        try:
            value = annotation(text)
        except ValueError:
            raise UserError(f"--set {assignment}: {text!r} is not {kind}.") from None
        if not math.isfinite(value):
            raise UserError(f"--set {assignment}: {text!r} is not finite.")
        return value
    if annotation is str:
        return text
    raise UserError(f"--set {assignment}: this field cannot be set from the command line.")


def _paths(config: Any, prefix: str = "") -> list[str]:
    paths = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            paths += _paths(value, f"{prefix}{field.name}.")
        else:
            paths.append(f"{prefix}{field.name}")
    return paths


def _nearest_path(root: Any, assignment: str) -> str:
    """` Did you mean optimizer.beta1?`: the nearest whole path, else the nearest last name."""
    given, paths = assignment.partition("=")[0].strip(), _paths(root)
    nearest = difflib.get_close_matches(given, paths, n=1, cutoff=0.75)
    if not nearest:
        last = {path.rpartition(".")[2]: path for path in paths}
        names = difflib.get_close_matches(given.rpartition(".")[2], list(last), n=1, cutoff=0.6)
        nearest = [last[name] for name in names]
    if nearest:
        return f" Did you mean {nearest[0]}?"
    return f" Known here: {', '.join(field.name for field in dataclasses.fields(root))}."
