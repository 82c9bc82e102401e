"""Print the tested versions, but keep what the system has already installed outside this virtual environment.

With --system-site-packages a container's own torch must stay: another build of it would be several GB more,
and might not fit the container's drivers.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def effective(line: str) -> str:
    """Return a constraint line, with the system's version where the system has the package."""
    name = line.partition("==")[0].strip()
    try:
        found = distribution(name)
    except (PackageNotFoundError, ValueError):
        return line
    inside = Path(str(found.locate_file(""))).resolve().is_relative_to(Path(sys.prefix).resolve())
    return line if inside else f"{name}=={found.version}"


for constraint in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    print(constraint if constraint.startswith("#") else effective(constraint))
