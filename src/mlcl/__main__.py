"""``python -m mlcl`` is ``mlcl``."""

import sys

from mlcl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
