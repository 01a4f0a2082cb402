"""The command ``nearl``, which is also ``python -m nearl``."""

from nearl.spinning import spin_briefly


def main() -> None:
    """Ctrl-C while the command line is imported ends it as later: without a traceback."""
    spin_briefly()
    try:
        from nearl.cli import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
