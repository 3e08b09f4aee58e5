"""What the options of nfdist partition can be, known before anything that does the work is loaded."""

METHODS = ("metis", "stream", "random", "file")
USES = ("number", "category", "text", "list", "ignore")  # of a column
