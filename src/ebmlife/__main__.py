import sys

if __name__ == "__main__":
    try:
        from ebmlife.cli import main  # takes seconds, in which a user may change his mind
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
