"""`python -m sandbox_image`: start the supervisor."""

import sys

from sandbox_image.supervisor import main

sys.exit(main())
