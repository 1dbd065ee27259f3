import sys

if __name__ == "__main__":
    try:
        from ebmlife.cli import main  # this import takes seconds, and the user may press Ctrl-C
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
