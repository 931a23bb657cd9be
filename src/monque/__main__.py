"""`python -m monque` is the command `monque`."""

from monque.cli import main

if __name__ == "__main__":
    main()
