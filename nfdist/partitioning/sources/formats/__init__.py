"""Every format a source may have: a file here that registers a SourceFormat is all that a new one takes."""

from nfdist.plugins import import_modules

import_modules(__name__)
