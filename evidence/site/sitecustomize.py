"""On the path of processes that have a bug planted into Python: plants it as the interpreter starts."""

import os
import sys
from pathlib import Path

if os.environ.get("PENSTOCK_PLANT"):
    sys.path.append(str(Path(__file__).parents[2]))
    from evidence import planted

    planted.plant(os.environ["PENSTOCK_PLANT"])
