"""Files from the network: checked before they are used, and kept.

A file gets its name when it is complete and its checksum is right, so that whatever
happens on the way, what is found under the name in the cache can be trusted or is
recognised as damaged. pooch does the downloading, and is imported when there is
something to download.
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from d2l_gpu.common.settings import DATA, import_pooch
from d2l_gpu.data.sources import abandoned, cached, checksum
from d2l_gpu.show.progress import Progress

TIMEOUT = 15  # seconds in which a server has to answer, and to go on when it pauses
CHUNK = 2**16  # bytes that are written at a time


def fetch(
    name: str,
    mirrors: Sequence[str],
    md5: str,
    folder: Path,
    *,
    instead: str = "",
    timeout: float = TIMEOUT,
) -> Path:
    """Return the path of a file, having downloaded it unless it is there already.

    Files that are there are checked each time, and downloaded again if damaged, with a
    progress bar.

    Args:
        name: of the file, there and here.
        mirrors: addresses of folders that have it, which end in ``/``; the next one is
            tried where one fails.
        md5: its checksum, in hexadecimal.
        folder: where it is kept.
        instead: what else a reader can do without the file, for the error.
        timeout: seconds in which a server has to answer.
    Returns:
        The path, of a file whose checksum is right.
    Raises:
        ConnectionError: no mirror gave the file.
        OSError: it cannot be kept in the folder, or not be read there.
        ImportError: pooch is not installed, and the file is not there.
    """
    target = folder / name
    with _folder_trouble(target):
        _remove_abandoned(target)
        if cached(name, md5, folder):
            return target
    pooch = import_pooch()
    from requests import RequestException  # comes with pooch

    failures = []
    for mirror in mirrors:
        # Nobody else's name, as several processes may be downloading at once.
        part = target.with_name(f"{name}.{secrets.token_hex(8)}.part")
        try:
            with _folder_trouble(target):
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    _download(pooch, mirror + name, part, timeout)
                except RequestException as error:
                    failures.append(_failure(mirror, _reason(error, timeout)))
                    continue
                if checksum(part) == md5:
                    _give_name(part, target, md5)
                    return target
        finally:  # also after Ctrl-C
            with contextlib.suppress(OSError):
                part.unlink()
        failures.append(_failure(mirror, "what it sends has another checksum"))
    raise ConnectionError(
        f"{name} could not be downloaded ({'; '.join(failures)}): try again later, or "
        f"put the file into {folder} by hand{f', or {instead}' * bool(instead)}."
    )


# ------------------------------------------------------------------ steps


def _download(pooch: ModuleType, url: str, part: Path, timeout: float) -> None:
    """Write what an address has to a file that is to be checked."""
    with Progress(label=part.name.split(".")[0]) as progress:
        download = pooch.HTTPDownloader(
            progressbar=_Bar(progress),
            chunk_size=CHUNK,
            timeout=timeout,
            # The file as it is: the checksum is that of the compressed one.
            headers={"Accept-Encoding": "identity"},
        )
        download(url, str(part), None)


class _Bar:
    """What pooch asks of a progress bar; it sets ``total``, 0 if it is not known."""

    def __init__(self, progress: Progress):
        self.total = 0
        self._progress = progress

    def update(self, nbytes: int) -> None:
        if self.total:
            self._progress.update(nbytes / self.total)
        else:
            self._progress.refresh()

    def reset(self) -> None:
        """Do nothing: pooch goes on to say that all is done, which it is already."""

    close = reset


def _give_name(part: Path, target: Path, md5: str) -> None:
    try:
        part.replace(target)
    except OSError:
        # Windows does not replace a file that is being read: by another process, say,
        # which has downloaded it meanwhile.
        if not (target.exists() and checksum(target) == md5):
            raise


def _remove_abandoned(target: Path) -> None:
    """Remove what downloads of processes that were killed have left behind."""
    for part in abandoned(target):
        with contextlib.suppress(OSError):  # gone already, or not ours to remove
            part.unlink()


# ------------------------------------------------------------------ what goes wrong


@contextlib.contextmanager
def _folder_trouble(target: Path) -> Iterator[None]:
    """Say in one sentence that a file can be neither read nor written in its folder."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # nothing of the system's: requests has its own, too
            raise
        raise OSError(
            f"{target.name} cannot be kept in {target.parent} "
            f"({error.strerror}): make room and see to its "
            f"permissions, or name another folder in the environment variable "
            f"{DATA}."
        ) from error


def _reason(error: Exception, timeout: float) -> str:
    """Return in a few words why a server did not give a file."""
    import requests
    from urllib3.exceptions import ReadTimeoutError

    if isinstance(error, requests.HTTPError):
        return f"{error.response.status_code} {error.response.reason}".strip()
    # Where a server stops in mid-file, requests speaks of a ConnectionError.
    stopped = error.args and isinstance(error.args[0], ReadTimeoutError)
    if isinstance(error, requests.Timeout) or stopped:
        return f"no answer within {timeout:g} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate cannot be verified"
    if isinstance(error, requests.exceptions.ProxyError):
        return "no connection through the proxy"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return type(error).__name__


def _failure(mirror: str, reason: str) -> str:
    return f"{urlsplit(mirror).netloc}: {reason}"
