"""Downloads: files are verified before use, and cached.

A file gets its final name only when it is complete and its checksum is right. So
whatever happens on the way, a file with that name in the cache is either good or
recognised as damaged. pooch does the downloading, and is imported only when there is
something to download.
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

from d2l_gpu.common.settings import DATA, import_pooch
from d2l_gpu.data.sources import abandoned, cached, is_good
from d2l_gpu.show.progress import Progress

TIMEOUT = 15  # seconds to wait for a server to respond, or to continue after a pause
CHUNK = 2**16  # bytes written at a time


def fetch(
    name: str,
    mirrors: Sequence[str],
    md5: str,
    folder: Path,
    *,
    sha256: str = "",
    instead: str = "",
    timeout: float = TIMEOUT,
) -> Path:
    """Return the path of a file, downloading it if necessary.

    Every call verifies the file, and downloads it again if it is damaged. A progress
    bar shows the download.

    Args:
        name: name of the file, on the server and in the folder.
        mirrors: URLs of folders that hold the file, each ending in ``/``; if one fails,
            the next is tried.
        md5: the file's MD5 checksum, in hexadecimal.
        folder: where to keep the file.
        sha256: its SHA-256 checksum, empty if it isn't known.
        instead: what else the reader can do, for the error message.
        timeout: seconds to wait for a server to respond.
    Returns:
        The path of the file, whose checksums are right.
    Raises:
        ConnectionError: no mirror delivered the file.
        OSError: the file can't be written to the folder, or can't be read there.
        ImportError: the file is missing or damaged, and pooch is not installed.
    """
    target = folder / name
    with _folder_trouble(target):
        _remove_abandoned(target)
        if cached(name, md5, folder, sha256):
            return target
    pooch = import_pooch()
    from requests import RequestException  # a dependency of pooch

    failures = []
    for mirror in mirrors:
        # A unique name, because several processes may be downloading at once.
        part = target.with_name(f"{name}.{secrets.token_hex(8)}.part")
        try:
            with _folder_trouble(target):
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    _download(pooch, mirror + name, part, timeout)
                except RequestException as error:
                    failures.append(_failure(mirror, _reason(error, timeout)))
                    continue
                if is_good(part, md5, sha256):
                    _give_name(part, target, md5, sha256)
                    return target
        finally:  # also after Ctrl-C
            with contextlib.suppress(OSError):
                part.unlink()
        failures.append(_failure(mirror, "the file it sent has the wrong checksum"))
    raise ConnectionError(
        f"{name} could not be downloaded ({'; '.join(failures)}): try again later, or "
        f"put the file into {folder} by hand{f', or {instead}' * bool(instead)}."
    )


# ------------------------------------------------------------------ steps


def _download(pooch: ModuleType, url: str, part: Path, timeout: float) -> None:
    """Download a URL to a temporary file, without verifying it."""
    with Progress(label=part.name.split(".")[0]) as progress:
        download = pooch.HTTPDownloader(
            progressbar=_Bar(progress),
            chunk_size=CHUNK,
            timeout=timeout,
            # Unchanged: the checksum is that of the compressed file.
            headers={"Accept-Encoding": "identity"},
        )
        download(url, str(part), None)


class _Bar:
    """The progress bar that pooch expects; it sets ``total``, to 0 if unknown."""

    def __init__(self, progress: Progress):
        self.total = 0
        self._progress = progress

    def update(self, nbytes: int) -> None:
        if self.total:
            self._progress.update(nbytes / self.total)
        else:
            self._progress.refresh()

    def reset(self) -> None:
        """Do nothing: at the end pooch refills the bar, which is full already."""

    close = reset


def _give_name(part: Path, target: Path, md5: str, sha256: str) -> None:
    try:
        part.replace(target)
    except OSError:
        # Windows can't replace a file that is being read, for example by another
        # process that has downloaded it in the meantime.
        if not (target.exists() and is_good(target, md5, sha256)):
            raise


def _remove_abandoned(target: Path) -> None:
    """Remove what the downloads of killed processes left behind."""
    for part in abandoned(target):
        with contextlib.suppress(OSError):  # gone already, or not ours to remove
            part.unlink()


# ------------------------------------------------------------------ errors


@contextlib.contextmanager
def _folder_trouble(target: Path) -> Iterator[None]:
    """Give OSErrors from the file system a message that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # from requests, whose errors are OSErrors too
            raise
        for above in target.parents:
            if above.is_file():
                raise OSError(
                    f"{target.name} cannot be kept in {target.parent} ({above} is a "
                    f"file): name a folder in the environment variable {DATA}."
                ) from None
        raise OSError(
            f"Cannot save {target.name} in {target.parent} ({error.strerror}): free "
            "some space and check the folder's permissions, or name another folder "
            f"in the environment variable {DATA}."
        ) from error


def _reason(error: Exception, timeout: float) -> str:
    """Return in a few words why a server didn't deliver a file."""
    import requests
    from urllib3.exceptions import ReadTimeoutError

    if isinstance(error, requests.HTTPError):
        return f"{error.response.status_code} {error.response.reason}".strip()
    # If a server stalls in mid-file, requests raises a ConnectionError.
    stopped = error.args and isinstance(error.args[0], ReadTimeoutError)
    if isinstance(error, requests.Timeout) or stopped:
        return f"no answer within {timeout:g} s"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was lost"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate cannot be verified"
    if isinstance(error, requests.exceptions.ProxyError):
        return "no connection through the proxy"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return type(error).__name__


def _failure(mirror: str, reason: str) -> str:
    return f"{urlsplit(mirror).netloc}: {reason}"
