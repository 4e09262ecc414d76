/* The process around PHP: its title, its death with its parent, and pcntl_fork(), which is wrapped so that a forked child
 * dies with howdah.
 *
 * Nothing here fails: a title that is too long is cut. */

#include "howdah_sapi.h"
#include "process/wrap.h"
#include "ext/standard/basic_functions.h"
#if PHP_VERSION_ID >= 80200
# include "ext/random/php_random.h"
#else
# include "ext/standard/php_lcg.h"
# include "ext/standard/php_mt_rand.h"
#endif
#include <poll.h>
#include <pthread.h>
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

/* Overwrites the arguments that ps(1) shows, up to their length. */
void howdah_set_title(const char *title)
{
	if (title_start) {
		size_t len = strlen(title) < title_room ? strlen(title) : title_room;
		memset(title_start, 0, title_room);
		memcpy(title_start, title, len);
	}
}

/* ---- death ---- */

#define PARENT_DIED (SIGRTMIN + 5)

static int supervisor_pidfd = -1;
static int supervisor_pid;
static int parent_pid;

/* A living supervisor adopts the processes whose parent died: another adopter is the first sign that it is dying. Its pidfd
 * becomes readable when the last of its threads is dead; no signal reports that. */
static void parent_died(int signal)
{
	struct pollfd watched = { .fd = supervisor_pidfd, .events = POLLIN };
	int adopted_by = getppid();
	int is_adopted_by_another = supervisor_pid > 0 && adopted_by != supervisor_pid;

	(void) signal;
	/* Only a thread of the parent has died, the one that forked: the signal is sent again for the last thread. */
	if (adopted_by == parent_pid) {
		return;
	}
	/* Without a supervisor nothing would end this process. With one, it finishes its request and is ordered to stop. */
	if (is_adopted_by_another || poll(&watched, 1, 0) > 0) {
		_exit(0);
	}
}

/* A parent that died before this call has sent no signal: the caller checks. */
static void set_death_signal(int parent)
{
	parent_pid = parent;
	prctl(PR_SET_PDEATHSIG, PARENT_DIED);
}

void howdah_die_with_prototype(int prototype_pid, int pidfd_of_supervisor, int pid_of_supervisor)
{
	struct sigaction action = { .sa_handler = parent_died, .sa_flags = SA_RESTART };

	supervisor_pidfd = pidfd_of_supervisor;
	supervisor_pid = pid_of_supervisor;
	sigaction(PARENT_DIED, &action, NULL);
	set_death_signal(prototype_pid);
	if (getppid() != prototype_pid) {
		/* The prototype is dead already. It has not reported this worker, which has claimed nothing. */
		_exit(0);
	}
}

/* ---- forks ---- */

int howdah_forked;
static zif_handler pcntl_fork;

static void note_fork(void)
{
	howdah_forked = 1;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, note_fork);
}

/* A fork has no death signal. A child that continues the script needs one, because nothing else would end it when howdah
 * is killed. A child that executes a program gets none: the program would inherit it. */
static ZEND_NAMED_FUNCTION(fork_with_death_signal)
{
	pid_t parent = getpid();

	pcntl_fork(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (getpid() != parent) {
		set_death_signal(parent);
		if (getppid() != parent) {
			parent_died(PARENT_DIED);
		}
	}
}

void howdah_forks_wrap(void)
{
	howdah_wrap("pcntl_fork", fork_with_death_signal, &pcntl_fork);
}

/* ---- after a fork of the prototype ---- */

/* The next number of mt_rand() and rand() is seeded by the kernel. */
void howdah_forget_mt_seed(void)
{
#if PHP_VERSION_ID >= 80200
	RANDOM_G(mt19937_seeded) = false;
#else
	BG(mt_rand_is_seeded) = 0;
#endif
}

/* Resets the state that workers must not share. (OpenSSL detects forks itself.) */
void howdah_php_after_fork(void)
{
	howdah_forked = 0;
	howdah_signals_after_fork();
	howdah_forget_mt_seed();
#if PHP_VERSION_ID >= 80200
	RANDOM_G(combined_lcg_seeded) = false;
#else
	uint16_t draws = 0;

	/* The state of 8.1's LCG is private. Each worker continues at another point of its sequence. */
	getrandom(&draws, sizeof(draws), 0);
	while (draws--) {
		php_combined_lcg();
	}
#endif
}
