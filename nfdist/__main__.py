"""`python -m nfdist`, which is also how torchrun starts a worker."""

from nfdist.cli.main import entry

if __name__ == "__main__":
    entry()
