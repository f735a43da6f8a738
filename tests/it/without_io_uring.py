# Runs the rest of its command line where io_uring_setup(2) fails with EPERM, as in a container: by seccomp(2).
import ctypes
import errno
import os
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
IO_URING_SETUP = 425  # on every architecture
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(Instruction))]


instructions = (Instruction * 4)(
    (LOAD, 0, 0, 0),  # the system call's number
    (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP),
    (RETURN, 0, 0, ERRNO | errno.EPERM),
    (RETURN, 0, 0, ALLOW),
)
libc = ctypes.CDLL(None, use_errno=True)
for arguments in [
    (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Program(len(instructions), instructions)), 0, 0),
]:
    if libc.prctl(*arguments) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
