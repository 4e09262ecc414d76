"""PHP scripts that kill their worker."""

DEATHS = {
    "segfault": "posix_kill(getmypid(), SIGSEGV); sleep(60);",
    "killed": "posix_kill(getmypid(), SIGKILL); sleep(60);",
    "nameless": "posix_kill(getmypid(), 34); sleep(60);",
    "exits": "FFI::cdef('void _exit(int);')->_exit(1);",
    "exits-well": "FFI::cdef('void _exit(int);')->_exit(0);",
    "aborts": "FFI::cdef('void abort(void);')->abort();",
    "closes": "$c = FFI::cdef('int close(int);'); for ($fd = 0; $fd < 256; $fd++) { $c->close($fd); }",
}
"""Scripts that kill their worker, or cut its connection to the router."""
