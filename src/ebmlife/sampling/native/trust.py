"""Who could have written a file. Code is loaded only from where nobody but this user and root can write."""

import grp
import os
import pwd
import stat
from pathlib import Path

from ebmlife.errors import BadInput
from ebmlife.storage.atomic import home

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(Exception):
    """Another user could write here. The message is one line with the reason and what to do."""


def trusted(folder: Path) -> Path:
    """The folder without links in its path; Untrusted unless only this user and root can write to it or replace it.

    OpenSSH has the same rule for its keys. It covers the folder and its parents, up to the home folder or else to the
    root. A parent may be writable if it is sticky, as /tmp is: nobody can rename there what belongs to others.
    """
    folder = folder.resolve(strict=True)
    try:
        top = home().resolve()
    except BadInput:
        top = Path("/")
    for place in (folder, *folder.parents):
        _check(place, place.stat(), sticky=place != folder)
        if place == top:
            break
    return folder


def read_file(file: Path) -> bytes:
    """The contents of a regular file that nobody but this user and root can write; Untrusted for links and others."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Untrusted(f"{file}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Untrusted(f"{file} is not a regular file")
        _check(file, found, sticky=False)
        return stream.read()


def _check(place: Path, found: os.stat_result, *, sticky: bool) -> None:
    if found.st_uid not in (os.getuid(), 0):
        raise Untrusted(f"{place} belongs to another user")
    if sticky and found.st_mode & stat.S_ISVTX:
        return
    writable = found.st_mode & _WRITABLE
    if writable & stat.S_IWOTH or (writable and not _is_private_group(found.st_gid)):
        raise Untrusted(f"other users can write to {place} (`chmod go-w {place}` changes that)")


def _is_private_group(group: int) -> bool:
    """Whether the group is this user's private one, which many systems make for each user."""
    try:
        user, named = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and named.gr_name == user.pw_name and set(named.gr_mem) <= {user.pw_name}
