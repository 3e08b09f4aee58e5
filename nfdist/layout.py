"""What things are called on disk, for whoever looks for them without reading them."""

MANIFEST_NAME = "manifest.json"  # of a partition, and of a hop
PART_PREFIX = "part-"
HOPS_SUFFIX = ".hops"  # of the folder beside a partition
STATES_FOLDER = "states"  # of a run, after an evaluation
EMBEDDINGS_FILE = "embeddings.parquet"
STUDY_FILE, JOURNAL_FILE = "study.json", "study.journal"  # of nfdist tune
