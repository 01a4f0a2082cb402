"""``python -m nearl`` is ``nearl``."""

from nearl.cli import main

if __name__ == "__main__":
    main()
