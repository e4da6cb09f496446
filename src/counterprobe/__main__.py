"""``python -m counterprobe``: the command line, where no program was installed."""

from counterprobe.cli.main import main

if __name__ == "__main__":  # spawned workers import this module once more
    main()
