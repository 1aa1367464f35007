"""``python -m twofold`` is the ``twofold`` command."""

import sys

from twofold.cli import main

if __name__ == "__main__":
    sys.exit(main())
