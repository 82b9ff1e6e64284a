"""Where references live: shipped with the package, and the user's own."""

import importlib.resources
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from experiments.device import Device
from experiments.reference.base import Reference, ThisDevice
from experiments.reference.calibrated import Calibrated, Calibration
from experiments.reference.published import Published
from experiments.run_folder import read_json, write_json
from models.errors import UserError, did_you_mean

HERE = "here"


def user_folder() -> pathlib.Path:
    """$KPD_REFERENCES, else kpd/references below $XDG_DATA_HOME (~/.local/share)."""
    if given := os.environ.get("KPD_REFERENCES"):
        return pathlib.Path(given).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return pathlib.Path(data).expanduser() / "kpd" / "references"


def shipped_folder() -> pathlib.Path:
    """The tables of the package."""
    return pathlib.Path(str(importlib.resources.files("experiments.reference") / "tables"))


def stored_references() -> dict[str, pathlib.Path]:
    """Path by name of every stored reference; the user's own go before shipped ones."""
    found: dict[str, pathlib.Path] = {}
    for folder in (shipped_folder(), user_folder()):
        found |= {path.stem: path for path in sorted(folder.glob("*.json"))}
    return found


def read_reference(path: pathlib.Path) -> Published | Calibration:
    """Reads and checks a stored reference; raises UserError naming what is wrong in it."""
    stored = read_json(path)
    if isinstance(stored, Mapping) and stored.get("format") == 1:
        if stored.get("kind") == "published":
            return Published.read(stored, path)
        if stored.get("kind") == "measured":
            return Calibration.from_json(stored, path)
    raise UserError(
        f"{path}: not a reference table of this version (format 1, published or measured)."
    )


def own_calibration(device: Device) -> Calibration | None:
    """The calibration of this device, None where it has not been made."""
    path = user_folder() / "devices" / f"{device.key}.json"
    stored = read_json(path)
    return None if stored is None else Calibration.from_json(stored, path)


def find_reference(name: str, account: str = "rst", device: Device | None = None) -> Reference:
    """The reference of this name: this device itself, a stored one, or one shipped.

    Args:
      name: "here", or a name that `stored_references` knows.
      account: "rst" counts seconds of the reference, "wall" those of this device.
      device: the one that runs; found out where None.

    Raises:
      UserError: an unknown name, a damaged table, or a reference where wall seconds count.
    """
    if account == "wall" and name != HERE:
        raise UserError(
            f"--account=wall counts this device's own seconds; leave out --reference={name}, or "
            "give --account=rst."
        )
    if name == HERE:
        return ThisDevice(account)
    known = stored_references()
    if name not in known:
        raise UserError(
            f"--reference {name}: no such reference.{did_you_mean(name, [HERE, *known])} "
            f"Known: {', '.join([HERE, *known])}; python -m experiments.calibrate --save={name} "
            "makes one of this device."
        )
    found = read_reference(known[name])
    if isinstance(found, Published):
        return found
    if device is None:
        # Finding out starts jax, which reading a published table does not need.
        from experiments.device import this_device

        device = this_device()
    return Calibrated(found, own_calibration(device), device)


def save_own(calibration: Calibration) -> pathlib.Path:
    """Keeps the calibration of this device, which converted figures start from."""
    return _save(calibration, user_folder() / "devices" / f"{calibration.device.key}.json")


def save_reference(calibration: Calibration, folder: pathlib.Path) -> pathlib.Path:
    """Stores a calibration as a reference under its name."""
    return _save(calibration, folder / f"{calibration.name}.json")


def check_name(name: str) -> None:
    """Raises UserError for a name that cannot be a reference's."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name == HERE:
        raise UserError(
            f"--save={name}: letters, digits, dots, dashes and underscores only, and not {HERE}."
        )


def _save(calibration: Calibration, path: pathlib.Path) -> pathlib.Path:
    stored: dict[str, Any] = calibration.to_json()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, json.loads(json.dumps(stored)))
    except OSError as error:
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}). Point KPD_REFERENCES at a "
            "folder that can be written to."
        ) from None
    return path
