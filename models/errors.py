"""The one error that is meant for the user's eyes."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A wrong input: its text says what was given, what is wrong and the nearest valid thing.

    Command lines print the text and exit with 2, without a traceback; everything else is a bug and
    keeps its traceback.
    """


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns ` Did you mean X?` for the known name nearest to `given`, or an empty string."""
    nearest = difflib.get_close_matches(given, list(known), n=1, cutoff=0.5)
    return f" Did you mean {nearest[0]}?" if nearest else ""
