"""Golden numbers are of the code beside them, never of an nfdist that is installed elsewhere."""

from pathlib import Path

import nfdist

ROOT = Path(__file__).resolve().parents[2]
if not Path(nfdist.__file__).resolve().is_relative_to(ROOT):
    raise ImportError(f"nfdist is that of {nfdist.__file__}, not of {ROOT}: set PYTHONPATH to the latter")
