/*
 * clock.c
 *		A library to preload into a server whose clock is to jump: the time of day is what
 *		it is, and as many microseconds later as the file CHAOS_CLOCK says.
 *
 * The file holds one int64, and is read through a mapping, so that a jump happens in all
 * processes at once.  Clocks that cannot jump are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t
offset(void)
{
	static volatile int64_t *mapped = NULL;
	const char *name;
	int			fd;

	if (mapped == NULL)
	{
		static int64_t none = 0;

		mapped = &none;
		name = getenv("CHAOS_CLOCK");
		if (name != NULL && (fd = open(name, O_RDONLY | O_CLOEXEC)) >= 0)
		{
			void	   *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

			if (map != MAP_FAILED)
				mapped = map;
			close(fd);
		}
	}
	return *mapped;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	static int	(*real) (clockid_t, struct timespec *) = NULL;
	int			result;

	if (real == NULL)
		real = (int (*) (clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	result = real(clock, now);
	if (result == 0 && clock == CLOCK_REALTIME)
	{
		int64_t		ns = now->tv_nsec + offset() % 1000000 * 1000;

		now->tv_sec += offset() / 1000000 + (ns < 0 ? -1 : ns / 1000000000);
		now->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
	}
	return result;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	struct timespec ts;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	now->tv_sec = ts.tv_sec;
	now->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *now)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	if (now != NULL)
		*now = ts.tv_sec;
	return ts.tv_sec;
}
