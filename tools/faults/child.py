"""Runs a command that ends, with all that it has started, when the caller does.

    python child.py COMMAND …

The caller holds the other end of standard input, which closes with it, however it ends.
A process between the two, since a thread inside pytest would make tests that fork warn.
It does not use `d2l_gpu.common.children`: the package that it would import is the copy
that may have a fault there.
"""

import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    process = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        start_new_session=os.name == "posix",
    )

    def end_with_caller() -> None:
        while os.read(0, 1):
            pass
        _kill(process)

    threading.Thread(target=end_with_caller, daemon=True).start()
    code = process.wait()
    _kill(process)  # what it has left behind
    os._exit(code if code >= 0 else 128 - code)


def _kill(process: subprocess.Popen) -> None:
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except OSError:
        pass  # gone


if __name__ == "__main__":
    main()
