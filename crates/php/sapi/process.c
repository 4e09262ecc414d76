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

#define PARENT_DIED (SIGRTMIN + 5)

static int supervisor_pidfd = -1;
static int supervisor_pid;
static int parent_pid;

/* A supervisor that lives adopts whose parent died: another parent is the first sign that it ends. Its pidfd follows
 * when the last of its threads is gone, and there comes no signal for that. */
static void parent_died(int signal)
{
	struct pollfd watched = { .fd = supervisor_pidfd, .events = POLLIN };
	int adopted_by = getppid();
	int is_adopted_by_another = supervisor_pid > 0 && adopted_by != supervisor_pid;

	(void) signal;
	/* A thread of the parent's has died, the one that forked: the signal comes again with the last of them. */
	if (adopted_by == parent_pid) {
		return;
	}
	/* Without a supervisor nobody would ever end this process. With one, it finishes its request and is told to go. */
	if (is_adopted_by_another || poll(&watched, 1, 0) > 0) {
		_exit(0);
	}
}

/* A parent that died before this was asked for has sent no signal: the caller looks. */
static void hear_of_parents_death(int parent)
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
	hear_of_parents_death(prototype_pid);
	if (getppid() != prototype_pid) {
		/* The prototype is dead already: nobody has heard of this worker, and it has claimed nothing. */
		_exit(0);
	}
}

/* ---- functions of PHP's that are followed ---- */

/* Has this called instead; what was called before goes to `handler`. NULL if this PHP has no such function. */
static zend_internal_function *follow(const char *name, zif_handler instead, zif_handler *handler)
{
	zend_internal_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));

	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return NULL;
	}
	*handler = function->handler;
	function->handler = instead;
	return function;
}

/* ---- forks ---- */

int howdah_forked;
static zif_handler pcntl_fork;

static void forked(void)
{
	howdah_forked = 1;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

/* A fork has no death signal. A child that goes on with the script must have one, or nothing would end it when
 * howdah is killed. Not so a child that executes a program: the program would inherit it. */
static ZEND_NAMED_FUNCTION(fork_and_follow)
{
	pid_t parent = getpid();

	pcntl_fork(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (getpid() != parent) {
		hear_of_parents_death(parent);
		if (getppid() != parent) {
			parent_died(PARENT_DIED);
		}
	}
}

/* ---- what a script does to its process ---- */

/* What cannot be taken back: the next request would find it so. */
static int altered;
static int has_alarm;

static struct {
	const char *name;
	int *flag;
	zend_internal_function *function;
	zif_handler handler;
} altering[] = {
	{ .name = "posix_setrlimit", .flag = &altered },
	{ .name = "posix_setsid", .flag = &altered },
	{ .name = "posix_setpgid", .flag = &altered },
	{ .name = "posix_setuid", .flag = &altered },
	{ .name = "posix_setgid", .flag = &altered },
	{ .name = "posix_seteuid", .flag = &altered },
	{ .name = "posix_setegid", .flag = &altered },
	{ .name = "posix_initgroups", .flag = &altered },
	{ .name = "proc_nice", .flag = &altered },
	{ .name = "pcntl_setpriority", .flag = &altered },
	{ .name = "pcntl_setcpuaffinity", .flag = &altered },
	{ .name = "pcntl_unshare", .flag = &altered },
	{ .name = "pcntl_setns", .flag = &altered },
	{ .name = "pcntl_alarm", .flag = &has_alarm },
};
#define ALTERING (sizeof(altering) / sizeof(altering[0]))

/* A closure of a function has a copy of it. */
static ZEND_NAMED_FUNCTION(note_and_call)
{
	for (size_t i = 0; i < ALTERING; i++) {
		if (altering[i].function && zend_string_equals(altering[i].function->function_name, EX(func)->common.function_name)) {
			*altering[i].flag = 1;
			altering[i].handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

void howdah_follow_functions(void)
{
	follow("pcntl_fork", fork_and_follow, &pcntl_fork);
	for (size_t i = 0; i < ALTERING; i++) {
		altering[i].function = follow(altering[i].name, note_and_call, &altering[i].handler);
	}
}

/* An alarm would kill the request that runs when it goes off. One that has gone off while it was blocked is forgotten
 * when it is ignored. */
void howdah_disarm(void)
{
	if (has_alarm) {
		struct sigaction ignore = { .sa_handler = SIG_IGN }, before;

		has_alarm = 0;
		alarm(0);
		sigaction(SIGALRM, &ignore, &before);
		sigaction(SIGALRM, &before, NULL);
	}
}

int howdah_is_altered(void)
{
	return altered;
}

/* What a fork must not share with its siblings. (OpenSSL notices forks by itself.) */
void howdah_php_after_fork(void)
{
	howdah_forked = 0;
	/* What preloaded code has done is how the application wants its workers. */
	altered = has_alarm = 0;
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
