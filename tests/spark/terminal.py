"""The terminal, without what a Java says by itself."""

INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector"  # Spark's launcher names it: a full Java says so


def without_javas(text: str) -> str:
    """The text without Java's line about the incubator module."""
    return "".join(line for line in text.splitlines(keepends=True) if line.rstrip("\n") != INCUBATOR)
