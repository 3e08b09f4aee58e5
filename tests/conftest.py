"""The tests run in the environment of the command line, which must be set before torch is loaded."""

import os

from nfdist.cli.main import ENVIRONMENT

# What tests compute is so small that a second thread costs more than it brings.
for name, value in {**ENVIRONMENT, "OMP_NUM_THREADS": "1"}.items():
    os.environ.setdefault(name, value)
