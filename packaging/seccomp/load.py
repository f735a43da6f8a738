#!/usr/bin/env python3
"""load.py PROFILE PROGRAM [ARGUMENT...]: runs PROGRAM under a seccomp profile of Docker's and Kubernetes' form, without either: by
libseccomp, as runc does. Sets no-new-privileges. For tests, and for machines without containers."""

import ctypes
import json
import os
import sys

ALLOW, LOG = 0x7FFF0000, 0x7FFC0000
ACTIONS = {"SCMP_ACT_ALLOW": ALLOW, "SCMP_ACT_LOG": LOG}
OPERATORS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
UNKNOWN = -1  # __NR_SCMP_ERROR


class Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def action(name, error):
    return 0x00050000 | error if name == "SCMP_ACT_ERRNO" else ACTIONS[name]


def checked(result):
    if result < 0:
        sys.exit(f"libseccomp: {os.strerror(-result)}")


with open(sys.argv[1], encoding="utf-8") as file:
    profile = json.load(file)
lib = ctypes.CDLL("libseccomp.so.2")
lib.seccomp_init.restype = ctypes.c_void_p
default = action(profile["defaultAction"], profile.get("defaultErrnoRet", 1))
context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(default)))
for rule in profile["syscalls"]:
    result = ctypes.c_uint32(action(rule["action"], rule.get("errnoRet", 1)))
    comparisons = [
        Comparison(each["index"], OPERATORS[each["op"]], each["value"], each.get("valueTwo", 0)) for each in rule.get("args", [])
    ]
    array = (Comparison * len(comparisons))(*comparisons)
    for name in rule["names"]:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        # Of another architecture, or newer than this libseccomp, which runc ignores too.
        if number != UNKNOWN:
            checked(lib.seccomp_rule_add_array(context, result, number, len(comparisons), array))
checked(lib.seccomp_load(context))
os.execv(sys.argv[2], sys.argv[2:])
