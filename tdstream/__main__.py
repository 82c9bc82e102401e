"""Run the command as ``python -m tdstream``."""

import sys

from tdstream.cli.main import main

sys.exit(main())
