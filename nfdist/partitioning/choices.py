"""What the options of nfdist partition can be, known before anything that does the work is loaded."""

METHODS = ("metis", "random", "file")
USES = ("number", "category", "text", "list", "ignore")  # of a column
