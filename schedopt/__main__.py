"""``python -m schedopt``: the command line."""

from schedopt.cli import main

if __name__ == "__main__":
    main(prog_name="schedopt")
