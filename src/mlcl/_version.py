"""The version, in one place: the build and every record read it from here."""

__version__ = "0.1.0"
