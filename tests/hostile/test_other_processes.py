"""A user of the machine who has the same user id as howdah's processes: it must not read their memory, nor take their descriptors."""

import os
import pwd
import subprocess
import sys

import pytest

USER = "www-data"

# Prints what it could do with the processes that are named.
ATTACK = """
import ctypes, os, sys

PTRACE_ATTACH, PIDFD_OPEN, PIDFD_GETFD = 16, 434, 438
libc = ctypes.CDLL(None, use_errno=True)


class Area(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def reads_memory(pid):
    buffer = ctypes.create_string_buffer(16)
    here, there = Area(ctypes.addressof(buffer), 16), Area(0x400000, 16)
    read = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    # EFAULT: it may read, but there is nothing at that address.
    return read >= 0 or ctypes.get_errno() != 1


def takes_descriptors(pid):
    handle = libc.syscall(PIDFD_OPEN, pid, 0)
    return any(libc.syscall(PIDFD_GETFD, handle, number, 0) >= 0 for number in range(16))


def opens(name):
    def try_it(pid):
        try:
            path = f"/proc/{pid}/{name}"
            return os.listdir(path) if name == "fd" else bool(open(path, "rb")) and (name == "mem" or open(path, "rb").read(1))
        except OSError:
            return False
    return try_it


TRIES = {
    "ptrace": lambda pid: libc.ptrace(PTRACE_ATTACH, pid, 0, 0) == 0,
    "process_vm_readv": reads_memory,
    "pidfd_getfd": takes_descriptors,
    **{name: opens(name) for name in ("mem", "maps", "environ", "fd", "auxv")},
}
for pid in map(int, sys.argv[1:]):
    for name, succeeds in TRIES.items():
        if succeeds(pid):
            print(pid, name)
"""


def test_processes_of_the_same_user_are_closed_to_each_other(run, folder):
    """The router, prototypes and workers run as this user: the scripts of one application must not read another one."""
    if os.geteuid() != 0:
        pytest.skip("only root can start processes of another user")
    folder.php("index.php", "echo 'here';")
    application = {"type": "php", "root": str(folder.root), "processes": 1, "user": USER}
    config = {
        "applications": {"a": application, "b": application},
        "listeners": {"127.0.0.1:{port}": {"pass": "applications/a"}},
        "settings": {"user": USER},
    }
    server = run(config)
    assert server.get("/").text == "here"
    processes = [server.router(), *server.workers("a", 1), *server.workers("b", 1), server.prototype("a"), server.prototype("b")]
    account = pwd.getpwnam(USER)
    assert all(os.stat(f"/proc/{process.pid}/task").st_uid in (0, account.pw_uid) for process in processes)
    own = subprocess.Popen(["sleep", "60"], user=account.pw_uid, group=account.pw_gid, extra_groups=[])
    try:
        pids = [str(process.pid) for process in processes]
        attack = [sys.executable, "-c", ATTACK]
        as_user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "capture_output": True, "text": True}
        # The attacks work: a process that the user started is open to it.
        assert f"{own.pid} mem" in subprocess.run([*attack, str(own.pid)], **as_user).stdout
        found = subprocess.run([*attack, *pids, str(server.pid)], **as_user)
        assert (found.stdout, found.stderr) == ("", "")
    finally:
        own.kill()
        own.wait()
    assert server.get("/").text == "here"
