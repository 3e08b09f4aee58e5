"""The cache of partitions that were fetched from URIs, as something that can be removed."""

from nfdist.cleaning.candidates import Candidate
from nfdist.runs.finding import size_bytes
from nfdist.store.cache import cache_folder, evict, is_used


def unused() -> list[Candidate]:
    """What of the cache no process uses at the moment."""
    folder = cache_folder()
    entries = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    return [Candidate(entry, "cache", entry, size_bytes=size_bytes(entry)) for entry in entries if not is_used(entry)]


def remove_unused(candidate: Candidate) -> bool:
    """Remove an entry, unless a process has begun to use it."""
    return evict(candidate.path)
