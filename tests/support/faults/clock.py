"""A wall clock that a test can set, for the processes that get its environment, and for their children."""

import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *offset;

__attribute__((constructor)) static void map(void)
{
	int file = open(getenv("CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
	offset = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, now);
	if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += *offset;
	return result;
}

time_t time(time_t *out)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (out) *out = now.tv_sec;
	return now.tv_sec;
}

int gettimeofday(struct timeval *now, void *zone)
{
	struct timespec precise;
	clock_gettime(CLOCK_REALTIME, &precise);
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}
"""

DAY = 86400


class WallClock:
    """It is right at first. `environ` is for the processes; the monotonic clock stays as it is."""

    def __init__(self, folder: Path):
        source, library, self._offset = (folder / name for name in ("clock.c", "clock.so", "offset"))
        source.write_text(SOURCE)
        if subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], capture_output=True).returncode:
            pytest.skip("no C compiler here")
        library.chmod(0o755)
        self._offset.write_bytes(bytes(8))
        self._offset.chmod(0o644)
        self.environ = {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(self._offset)}

    def set_off(self, seconds: int) -> None:
        """Sets it this far from the right time."""
        with open(self._offset, "r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))
