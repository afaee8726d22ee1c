"""``python -m ctrlchan``: the command, where the script is not on the path."""

from ctrlchan.cli import main

if __name__ == "__main__":
    main()
