"""The plotting library as one script that a page carries with it."""

import importlib.metadata
import os

from experiments.data.cache import default_cache_dir
from models.errors import UserError

# The version of Vega-Lite that altair 6.3 writes.
VEGA_LITE = "6.4"


def vega_script() -> str:
    """JavaScript of Vega, Vega-Lite and Vega-Embed; made once for each version, then kept."""
    version = importlib.metadata.version("vl-convert-python")
    kept = default_cache_dir() / "report" / f"vega-{version}-{VEGA_LITE}.js"
    if kept.exists():
        return kept.read_text()
    # Imported here: it brings a JavaScript engine along, which is needed this once.
    import vl_convert

    # Its stub does not know that the snippet may be left out.
    script: str = vl_convert.javascript_bundle(None, VEGA_LITE)  # type: ignore[arg-type]
    if "</script" in script:
        raise UserError(f"vl-convert-python {version}: its bundle cannot stand inside a page.")
    kept.parent.mkdir(parents=True, exist_ok=True)
    temporary = kept.with_suffix(f".{os.getpid()}")
    temporary.write_text(script)
    temporary.replace(kept)
    return script
