# Runs the rest of its command line where the kernel rejects (EPERM) what the first argument names, as containers do: by
# seccomp(2).
import ctypes
import errno
import os
import platform
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
# Where struct seccomp_data has the number of the system call, and its second and third argument, of which little endian
# has the lower half first.
NUMBER, SECOND, THIRD = 0, 24, 32
SETSOCKOPT = {"x86_64": 54, "aarch64": 208}.get(platform.machine())
SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF = 1, 51
REFUSED = {
    # io_uring_setup(2), on every architecture.
    "io_uring": [(NUMBER, 425)],
    "steering": [(NUMBER, SETSOCKOPT), (SECOND, SOL_SOCKET), (THIRD, SO_ATTACH_REUSEPORT_CBPF)],
}


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(Instruction))]


conditions = REFUSED[sys.argv[1]]
if any(value is None for _, value in conditions):
    sys.exit(f"setsockopt(2) has no known number on {platform.machine()}")
listed = []
for place, (offset, value) in enumerate(conditions):
    # To the last instruction, unless it holds.
    otherwise = 2 * (len(conditions) - place - 1) + 1
    listed += [(LOAD, 0, 0, offset), (JUMP_IF_EQUAL, 0, otherwise, value)]
listed += [(RETURN, 0, 0, ERRNO | errno.EPERM), (RETURN, 0, 0, ALLOW)]
instructions = (Instruction * len(listed))(*listed)
libc = ctypes.CDLL(None, use_errno=True)
for arguments in [
    (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Program(len(instructions), instructions)), 0, 0),
]:
    if libc.prctl(*arguments) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[2], sys.argv[2:])
