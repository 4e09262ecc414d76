/* The process around PHP: its title, whose death it follows, and what a fork must not share.
 *
 * Nothing here fails: a title that is too long is cut. */

#include "howdah_sapi.h"
#include "php.h"
#include "ext/standard/basic_functions.h"
#if PHP_VERSION_ID >= 80200
# include "ext/random/php_random.h"
#else
# include "ext/standard/php_lcg.h"
# include "ext/standard/php_mt_rand.h"
#endif
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- the title ---- */

static char *title_start;
static size_t title_room;

__attribute__((constructor)) static void remember_arguments(int argc, char **argv)
{
	if (argc > 0) {
		title_start = argv[0];
		title_room = (size_t) (argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
	}
}

/* Writes over the arguments that ps(1) shows; no longer than they were. */
void howdah_set_title(const char *title)
{
	if (title_start) {
		size_t len = strlen(title) < title_room ? strlen(title) : title_room;
		memset(title_start, 0, title_room);
		memcpy(title_start, title, len);
	}
}

/* ---- death ---- */

static int supervisor = -1;

static void prototype_died(int signal)
{
	struct pollfd watched = { .fd = supervisor, .events = POLLIN };

	(void) signal;
	/* Without a supervisor nobody would ever end this process. With one, it finishes its request and is told to go. */
	if (poll(&watched, 1, 0) > 0) {
		_exit(0);
	}
}

void howdah_die_with_prototype(int supervisor_pidfd)
{
	struct sigaction action = { .sa_handler = prototype_died, .sa_flags = SA_RESTART };
	int died = SIGRTMIN + 5;

	supervisor = supervisor_pidfd;
	sigaction(died, &action, NULL);
	prctl(PR_SET_PDEATHSIG, died);
}

/* ---- forks ---- */

/* What a fork must not share with its siblings. (OpenSSL notices forks by itself.) */
void howdah_php_after_fork(void)
{
#if PHP_VERSION_ID >= 80200
	RANDOM_G(combined_lcg_seeded) = false;
	RANDOM_G(mt19937_seeded) = false;
#else
	uint16_t draws = 0;

	/* 8.1 keeps the state of its LCG to itself. Each worker goes on from another place of the sequence. */
	getrandom(&draws, sizeof(draws), 0);
	while (draws--) {
		php_combined_lcg();
	}
	BG(mt_rand_is_seeded) = 0;
#endif
}
