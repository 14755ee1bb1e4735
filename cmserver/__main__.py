"""`python -m cmserver`."""

from cmserver.cli.main import main

if __name__ == "__main__":
    main()
