"""Every metric that nodes may be scored by: a file here that registers a Metric is all that a new one takes."""

from nfdist.plugins import import_modules

import_modules(__name__)
