"""Starts this copy of cmserver: `python -EP cmserver/__main__.py`, or `python -EP -m cmserver` where it is installed."""

import gc
import sys
from pathlib import Path

from_here = str(Path(__file__).resolve().parents[1])

if __name__ == "__main__":
    # -EP keeps the working folder and PYTHONPATH out. Behind Python's own library, where nothing of ours can hide a part of it.
    if from_here not in sys.path:
        sys.path.append(from_here)
    gc.disable()  # nothing that imports make is garbage, and looking for some was a sixth of a start
    if sys.argv[1:2] == ["--child"]:
        from cmserver.cli.child import main
    else:
        from cmserver.cli.main import main
    gc.freeze()
    gc.enable()
    main()
