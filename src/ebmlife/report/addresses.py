"""By which names the page's server may be called."""

from ipaddress import ip_address
from socket import gethostname
from urllib.parse import urlsplit


def is_own(header: str, host: str) -> bool:
    """Whether a Host header has this server's name, or an IP number; another may be a stranger's that points here."""
    name = _hostname(header)
    return name in ("localhost", host, gethostname().lower()) or _is_number(name)


def _is_number(host: str | None) -> bool:
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
