"""Two machines on one: each has its own network, name, processes and /etc/hosts.

A machine consists of Linux namespaces, which have no names and leave no files: they end
with the first process in them, and with it ends every other process there. This first
process reads a pipe whose other end only the caller holds, so no machine outlives the
caller, whatever ends that.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("node-a", "node-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
INTERFACE = "link0"

_OWN = ("--net", "--uts", "--pid", "--mount")
_TOOLS = ("unshare", "nsenter", "ip", "mount", "hostname", "sh", "cat")


@dataclass
class Machine:
    """One of the machines.

    Attributes:
        name: its host name, which both know.
        address: its address in the network of the two, on the interface ``INTERFACE``.
    """

    name: str
    address: str
    _holder: subprocess.Popen = field(repr=False)
    _first: int = field(repr=False)  # the first process in it, by its number outside

    def command(self, *command: str | Path) -> list[str]:
        """Return the command line that runs a command here, in the same folder."""
        target = ("--target", str(self._first), *_users())
        # Whoever enters a mount namespace is in the root folder then.
        stay = ("sh", "-c", 'cd "$0" && exec "$@"', str(Path.cwd()))
        return ["nsenter", *target, *_OWN, *stay, *map(str, command)]

    def run(self, *command: str | Path) -> str:
        """Run a command on this machine; return what it prints."""
        return _run(self.command(*command))

    def crash(self) -> None:
        """End every process on this machine at once; it is there again right after."""
        self.run("sh", "-c", "kill -9 -1 || true")  # -1: all but the first and this one

    def remove(self) -> None:
        """End the machine, and every process on it, at once."""
        # Closes the pipe; the first process is gone when all others there are.
        self._holder.communicate()


def why_not() -> str | None:
    """Say why machines cannot be made here; None where they can."""
    missing = [name for name in _TOOLS if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    try:
        _run(["unshare", *_new_users(), *_OWN, "--fork", "true"])
    except subprocess.CalledProcessError as error:
        return f"namespaces are not permitted here: {error.stderr.strip()}"
    return None


@contextlib.contextmanager
def two_machines() -> Iterator[list[Machine]]:
    """Make two machines with a cable between them; end them when the block ends."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        hosts = Path(folder, "hosts")
        lines = zip(("127.0.0.1", *ADDRESSES), ("localhost", *NAMES), strict=True)
        hosts.write_text("".join(f"{address} {name}\n" for address, name in lines))
        machines = []
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            # Only in the user namespace of the first may the second be wired to it.
            prefix = ["unshare", *_new_users()]
            if machines and _users():
                prefix = ["nsenter", f"--target={machines[0]._first}", *_users()]
                prefix.append("unshare")
            machine = _start(prefix, name, address)
            stack.callback(machine.remove)
            machines.append(machine)
        first, second = machines
        end = ("name", INTERFACE)
        peer = ("peer", *end, "netns", str(second._first))
        cable = ("ip", "link", "add", *end, "type", "veth", *peer)
        _run(["nsenter", f"--target={first._first}", *_users(), "--net", *cable])
        for machine in machines:
            machine.run("mount", "--bind", hosts, "/etc/hosts")
            if Path("/etc/resolv.conf").exists():  # a name server would not be reached
                machine.run("mount", "--bind", os.devnull, "/etc/resolv.conf")
            machine.run("ip", "address", "add", f"{machine.address}/24", "dev", end[1])
            for interface in ("lo", INTERFACE):
                machine.run("ip", "link", "set", interface, "up")
        yield machines


def _start(prefix: Sequence[str], name: str, address: str) -> Machine:
    # Whoever ignores SIGCHLD has no dead to bury, as the first process else has to.
    script = 'hostname "$0" && echo ready && exec env --ignore-signal=CHLD cat'
    holder = subprocess.Popen(
        [*prefix, *_OWN, "--mount-proc", "--kill-child", "sh", "-c", script, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"The machine {name} could not be made.")
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text()
        return Machine(name, address, holder, int(children))
    except BaseException:
        holder.kill()
        holder.communicate()
        raise


def _users() -> tuple[str, ...]:
    """For nsenter: who is not root, is root in a user namespace."""
    return () if os.geteuid() == 0 else ("--user", "--preserve-credentials")


def _new_users() -> tuple[str, ...]:
    """For unshare."""
    return () if os.geteuid() == 0 else ("--user", "--map-root-user")


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout
