"""Makes the helpers of the trainer's own tests importable here."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))
