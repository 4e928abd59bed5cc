"""``python -m evopolicygym.session``: the Agent's command, the same as ``evopolicygym-session``."""

import sys

from evopolicygym.session.client import main

if __name__ == "__main__":
    sys.exit(main())
