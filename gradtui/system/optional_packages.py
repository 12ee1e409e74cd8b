"""What to type for a package that gradtui can do without. Standard library only."""

from __future__ import annotations


def version_of(package: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    # Of a dozen modules, which no completion of a shell needs.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def install_words(package: str, extra: str) -> str:
    """Return the command that installs a package. Where torch is not wanted, an extra of gradtui would bring it."""
    return f"pip install 'gradtui[{extra}]'" if version_of("torch") is not None else f"pip install {package}"
