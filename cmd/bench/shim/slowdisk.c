/* Makes each fdatasync take longer: a disk that is slow to make things durable,
 * for Postgres, which does not know that this is here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int fdatasync(int fd)
{
	static int (*real)(int);
	static long delay = -1;
	if (!real) {
		real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
		const char *us = getenv("BENCH_SLOW_FDATASYNC_US");
		delay = us ? atol(us) : 0;
	}
	struct timespec left = {delay / 1000000, delay % 1000000 * 1000};
	while (nanosleep(&left, &left))
		;
	return real(fd);
}
