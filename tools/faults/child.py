"""Run a command, and kill it and all processes that it started when the caller ends.

    python child.py COMMAND …

The caller holds the other end of standard input, which closes however the caller ends.
This is a process of its own, because a thread inside pytest would cause warnings in
tests that fork. It doesn't use `d2l_gpu.common.children`: it would import that from the
copy of the package, where a fault may be planted.
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
    _kill(process)  # processes that it left behind
    os._exit(code if code >= 0 else 128 - code)


def _kill(process: subprocess.Popen) -> None:
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except OSError:
        pass  # already gone


if __name__ == "__main__":
    main()
