"""The tests run in the environment of the command line, which must be set before torch is loaded."""

import os

from nfdist.cli.main import ENVIRONMENT

for name, value in ENVIRONMENT.items():
    os.environ.setdefault(name, value)
