"""What --help prints: a command's own flags, and those that it shares with experiments.launch."""

import os
import re
import sys
import textwrap
from collections.abc import Sequence

from absl import flags

_LAUNCH = "experiments.launch"
# What absl puts around a default.
_QUOTE = "'"


def help_text(about: str, shared: Sequence[str] | None) -> str:
    """The command in words, its own flags, and the shared ones; None where all are its own."""
    theirs = [] if shared is None else [flag for flag in shared_flags() if flag.name in shared]
    own = [
        flag
        for module, defined in flags.FLAGS.flags_by_module_dict().items()
        if not module.startswith("absl.") and module != _LAUNCH
        for flag in defined
    ]
    lines = [about.strip(), "", *map(_line, own)]
    if own and theirs:
        lines += ["", f"As in python -m {_LAUNCH}:"]
    return "\n".join([*lines, *map(_line, theirs)])


def shared_flags() -> list[flags.Flag]:
    """The flags of experiments.launch, where another command has imported it."""
    return flags.FLAGS.flags_by_module_dict().get(_LAUNCH, [])


def show(text: str) -> None:
    """Prints text; a reader who has seen enough, such as `| head`, is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What Python would write at its end has nowhere to go either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(flag: flags.Flag) -> str:
    """`  --budget  What training may cost: 90s, 6h or 2000steps.`, with its default."""
    name, default = f"--{flag.name}", flag.default
    if isinstance(flag, flags.BooleanFlag):
        name = f"--[no]{flag.name}"
    elif choices := getattr(flag.parser, "enum_values", None):
        name += f"={'|'.join(choices)}"
    # absl says the choices before, and how to repeat a flag behind.
    text = re.sub(r"^<[^>]*>: |;\s+repeat this option.*$", "", flag.help or "", flags=re.DOTALL)
    if default is not None and default is not False and default not in ("", []):
        text += f" [{str(flag.default_as_str).strip(_QUOTE)}]"
    return textwrap.fill(
        text, width=100, initial_indent=f"  {name:<22}  ", subsequent_indent=" " * 26
    )
