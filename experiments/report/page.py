"""A page as one file: text that is escaped, plots with their library, no network."""

import importlib.metadata
import importlib.resources
import json
import os
import pathlib
from typing import Any

import jinja2
from markupsafe import Markup

from experiments.report import charts
from experiments.report.bundle import vega_script

# Packages whose versions a page of a comparison names.
_PACKAGES = ("kpd", "numpy", "scipy", "altair", "vl-convert-python")


def write_page(path: pathlib.Path, template: str, **values: Any) -> pathlib.Path:
    """Fills a template and writes the page whole or not at all."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["as_json"] = as_json
    html = environment.get_template(template).render(
        style=Markup(_read("page.css")),
        script=Markup(_read("page.js")),
        vega=Markup(vega_script()),
        axes=charts.axes(),
        tool_versions={name: importlib.metadata.version(name) for name in _PACKAGES},
        **values,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(html)
    temporary.replace(path)
    return path


def as_json(value: Any) -> Markup:
    """JSON for a script element: nothing in it can end the element or start another."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _read(name: str) -> str:
    return importlib.resources.files("experiments.report").joinpath(name).read_text("utf-8")
