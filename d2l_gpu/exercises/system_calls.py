"""Refuses system calls by which an answer could reach what Landlock doesn't protect.

Shared memory of System V outlives its process, limits can be set for others, attributes
of files are no writing to Landlock, and other processes' memory is no file. A filter
(seccomp) makes these calls fail with EPERM, in this thread and in all that it starts.
It can't be taken off, and needs no root. Linux on x86-64 and arm64 only.
"""

import ctypes
import platform
import struct
import sys

# The numbers of calls: linux/arch/x86/entry/syscalls/syscall_64.tbl, and
# include/uapi/asm-generic/unistd.h for arm64.
_REFUSED = {
    "x86_64": {
        "shmget": 29,
        "semget": 64,
        "msgget": 68,
        "ptrace": 101,
        "setpriority": 141,
        "setxattr": 188,
        "lsetxattr": 189,
        "fsetxattr": 190,
        "removexattr": 197,
        "lremovexattr": 198,
        "fremovexattr": 199,
        "mq_open": 240,
        "add_key": 248,
        "ioprio_set": 251,
        "process_vm_writev": 311,
        "setxattrat": 463,
        "removexattrat": 466,
    },
    "aarch64": {
        "setxattr": 5,
        "lsetxattr": 6,
        "fsetxattr": 7,
        "removexattr": 14,
        "lremovexattr": 15,
        "fremovexattr": 16,
        "ioprio_set": 30,
        "ptrace": 117,
        "setpriority": 140,
        "mq_open": 180,
        "msgget": 186,
        "semget": 190,
        "shmget": 194,
        "add_key": 217,
        "process_vm_writev": 271,
        "setxattrat": 463,
        "removexattrat": 466,
    },
}
# Those that a process may use on itself, whose number is then 0.
_FOR_ITSELF = {
    "x86_64": {"sched_setscheduler": 144, "prlimit64": 302},
    "aarch64": {"sched_setscheduler": 119, "prlimit64": 261},
}
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_X32 = 0x40000000  # the bit of calls of another kind on x86-64

# linux/prctl.h, linux/seccomp.h, linux/bpf_common.h
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_NUMBER, _KIND, _FIRST_ARGUMENT = 0, 4, 16  # places in struct seccomp_data


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_calls() -> bool:
    """Refuse calls in this thread and what it starts; return whether that works."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _REFUSED:
        return False
    code = b"".join(_instructions(machine))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return not libc.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def _instructions(machine: str) -> list[bytes]:
    """Return the filter's program; jumps are forward, by so many instructions."""

    def instruction(code: int, value: int, if_true: int = 0, if_not: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_not, value)

    refuse, allow = instruction(_RETURN, _EPERM), instruction(_RETURN, _ALLOW)
    program = [
        instruction(_LOAD, _KIND),
        instruction(_IF_EQUAL, _ARCHITECTURE[machine], 1, 0),
        refuse,  # calls of a 32-bit program have other numbers
        instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [instruction(_IF_AT_LEAST, _X32, 0, 1), refuse]
    for number in _REFUSED[machine].values():
        program += [instruction(_IF_EQUAL, number, 0, 1), refuse]
    for number in _FOR_ITSELF[machine].values():
        program += [
            instruction(_IF_EQUAL, number, 0, 4),
            instruction(_LOAD, _FIRST_ARGUMENT),
            instruction(_IF_EQUAL, 0, 0, 1),
            allow,
            refuse,
        ]
    return [*program, allow]
