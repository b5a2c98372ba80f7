"""Parts of the flows: runs, stages, launchers, tracking."""

import logging

logging.getLogger("anchorloop").setLevel(logging.INFO)  # else Prefect shows warnings alone
