"""Everything that must not break a run, tried many times: `make torture`, or `python -m tests.torture --help`.

A test is a module with a function `cases` (see cases.py). Commands run in forked children (see commands.py), as a user
without rights. What commands leave behind is compared, file by file, with what an undisturbed command left.
"""
