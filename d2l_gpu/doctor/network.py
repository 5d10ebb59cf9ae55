"""The network, which the course needs only to install and to download data."""

import importlib.util
import re
import socket
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies

from d2l_gpu.data.sources import FASHION_MNIST

from .facts import Facts
from .findings import NOTE, OK, PROBLEM, Finding, one_line, unset

SECONDS_TO_CONNECT = 3.0
SECONDS_TO_ASK = 6.0  # finding a name's address has no limit of its own

PORTS = {"http": 80, "https": 443, "socks4": 1080, "socks5": 1080}
EXAMPLE = "http://proxy.example.org:3128"


def check_network(facts: Facts) -> list[Finding]:
    """Do proxies make sense, and answer? Without a network, nothing is wrong."""
    proxies: dict[str, list[str]] = {}
    for scheme, address in getproxies().items():
        if scheme in ("http", "https", "all"):
            proxies.setdefault(address, []).append(f"{scheme}_proxy")
    findings = []
    for address, variables in proxies.items():
        findings += _proxy(facts, address, " and ".join(sorted(variables)))
    if findings:
        return findings
    if proxies:
        return [Finding("network", OK, "The proxy answers.")]
    host = urlsplit(FASHION_MNIST.mirrors[0]).hostname
    trouble = _trouble(facts, host, 443)
    if trouble:
        what = f"Offline ({trouble}): fine, only installing and new data need a network"
        return [Finding("network", OK, f"{what}.")]
    return [Finding("network", OK, f"{host}, which has the data, answers.")]


def _proxy(facts: Facts, address: str, variables: str) -> list[Finding]:
    shown = _without_password(address)
    try:
        parts = _read(address)
    except ValueError as error:
        return [
            Finding(
                "network",
                PROBLEM,
                f"{variables} is {shown!r}, which is not the address of a proxy: "
                f"{error}.",
                f"Set it like {EXAMPLE}, or remove it: {_unset_all(variables)}",
            )
        ]
    trouble = _trouble(facts, parts.hostname, parts.port or PORTS[_kind(parts.scheme)])
    if not trouble:
        return []
    return [
        Finding(
            "network",
            NOTE,
            f"The proxy in {variables}, {shown}, does not answer ({trouble}); what is "
            "installed works without it.",
            f"If there is no such proxy, remove it: {_unset_all(variables)}",
        )
    ]


def _read(address: str) -> SplitResult:
    """Return the parts of a proxy's address.

    Raises:
        ValueError: it makes no sense; the message says why, in a few words.
    """
    if address[:1] in "'\"":
        raise ValueError("it begins with a quotation mark")
    if re.search(r"\s", address):
        raise ValueError("there is a space in it")
    # pip and pooch take it for http where nothing is said.
    parts = urlsplit(address if "://" in address else f"http://{address}")
    if _kind(parts.scheme) not in PORTS:
        raise ValueError(f"{parts.scheme!r} is not http, https or socks5")
    if not parts.hostname:
        raise ValueError("it names no host")
    try:
        parts.port  # noqa: B018
    except ValueError:
        raise ValueError("its port is not a number from 0 to 65535") from None
    if parts.scheme.startswith("socks") and not importlib.util.find_spec("socks"):
        raise ValueError("for SOCKS, pip and pooch need the package PySocks")
    return parts


def _kind(scheme: str) -> str:
    return scheme.removesuffix("h").removesuffix("a")  # socks5h, socks4a


def _without_password(address: str) -> str:
    return re.sub(r"(^|//)[^/@]*@", r"\1", address)


def _unset_all(variables: str) -> str:
    names = variables.split(" and ")
    spellings = [each for name in names for each in (name, name.upper())]
    return unset(spellings[0]) + "".join(f" {name}" for name in spellings[1:])


# ------------------------------------------------------------------ connections


def _trouble(facts: Facts, host: str, port: int) -> str:
    answer = facts.ask(connect, host, port, most=SECONDS_TO_ASK)
    return answer.said.get("refused", "") or answer.trouble


def connect(host: str, port: int) -> Iterator[dict]:
    """Connect: a probe, since asking for a name's address may take very long."""
    try:
        socket.create_connection((host, port), timeout=SECONDS_TO_CONNECT).close()
    except OSError as error:
        yield {"refused": error.strerror or one_line(str(error))}
