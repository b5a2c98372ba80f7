"""What every test process needs, however it was started."""

import signal

# A shell starts background jobs with SIGINT ignored, and children inherit that: tests which
# interrupt a run would then wait for something that cannot happen.
signal.signal(signal.SIGINT, signal.default_int_handler)
