"""The command ``nearl``, which is also ``python -m nearl``."""


def main() -> None:
    """Ctrl-C while the command line is imported ends it as later: without a traceback."""
    try:
        from nearl.cli import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
