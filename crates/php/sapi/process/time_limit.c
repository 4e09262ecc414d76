/* PHP's timer for max_execution_time, without the system calls that only repeat.
 *
 * At the start of each request PHP sets the timer, sets the handler of the timer's signal, and unblocks the signal; at the
 * end it stops the timer. libphp calls functions of the C library for that. This file has functions with the same names,
 * which libphp finds first:
 *
 * - setitimer(): a timer that was set less than KEEP ago keeps running when PHP stops it, and is not set again when PHP sets
 *   it to the same limit. A limit may be over up to KEEP early; the kernel itself counts in steps of 1 to 10 ms. A signal
 *   of a timer that PHP has stopped is dropped.
 * - sigaction() of the timer's signal: the handler that is set already is not set again.
 * - sigprocmask(): the timer's signal is not unblocked while it is known to be unblocked.
 *
 * All other calls go to the C library. A library can change a handler or a mask without these functions: as with the other
 * signals (signals.c), nothing is taken for known at each CHECK_EVERY-th request.
 *
 * Nothing here fails: a result is the C library's, or success for what is so already. */

#include "process/time_limit.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

/* For how long a timer may run before it is set again. */
#define KEEP (10 * 1000 * 1000ull) /* nanoseconds */
/* The part of a sigset_t that the kernel knows. The C library leaves the rest as it was. */
#define MASK_BYTES (_NSIG / 8)

/* The handler of the timer also reads these. */
static volatile sig_atomic_t timer_runs, timer_is_wanted;
static time_t limit;
static uint64_t set_at;

/* The action that the kernel has for the timer's signal: PHP's own, before drop_stray() replaced its handler. */
static struct sigaction action_of_php;
static volatile sig_atomic_t action_is_known, signal_is_unblocked;

static int (*real_setitimer)(__itimer_which_t which, const struct itimerval *value, struct itimerval *old);
static int (*real_sigaction)(int number, const struct sigaction *action, struct sigaction *old);
static int (*real_sigprocmask)(int how, const sigset_t *set, sigset_t *old);

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* A forked process inherits no timer. */
static void forget_timer(void)
{
	timer_runs = timer_is_wanted = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forget_timer);
}

void howdah_time_limit_check(void)
{
	action_is_known = signal_is_unblocked = 0;
}

/* ---- the timer ---- */

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t) time.tv_sec * 1000000000 + (uint64_t) time.tv_nsec;
}

/* The timer counts processor time, and no more than this can have passed of it. */
static bool is_fresh(void)
{
	return timer_runs && now() - set_at < KEEP;
}

static bool is_whole_seconds(const struct itimerval *value)
{
	return value->it_value.tv_usec == 0 && value->it_interval.tv_sec == 0 && value->it_interval.tv_usec == 0;
}

static bool is_handler(const struct sigaction *action)
{
	return (action->sa_flags & SA_SIGINFO) && action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

int setitimer(__itimer_which_t which, const struct itimerval *value, struct itimerval *old)
{
	if (!real_setitimer) {
		real_setitimer = real("setitimer");
	}
	if (which != ITIMER_PROF || !value) {
		return real_setitimer(which, value, old);
	}
	time_t seconds = value->it_value.tv_sec;
	/* Only the signal of a timer that has our handler can be dropped. */
	bool is_of_php = !old && is_whole_seconds(value) && is_handler(&action_of_php);
	if (is_of_php && (seconds == 0 || seconds == limit) && is_fresh()) {
		timer_is_wanted = seconds > 0;
		return 0;
	}
	/* A signal that comes between these lines belongs to the former limit. */
	timer_is_wanted = 1;
	timer_runs = 0;
	int result = real_setitimer(which, value, old);
	if (result == 0 && is_of_php && seconds > 0) {
		limit = seconds;
		set_at = now();
		timer_runs = 1;
	}
	return result;
}

/* ---- its signal ---- */

static void drop_stray(int number, siginfo_t *info, void *context)
{
	if (timer_runs && !timer_is_wanted) {
		timer_runs = 0;
		return;
	}
	timer_runs = 0;
	action_of_php.sa_sigaction(number, info, context);
}

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
	return a->sa_sigaction == b->sa_sigaction && a->sa_flags == b->sa_flags
		&& memcmp(&a->sa_mask, &b->sa_mask, MASK_BYTES) == 0;
}

static int set_action(const struct sigaction *action)
{
	struct sigaction ours = *action;

	if (is_handler(action)) {
		ours.sa_sigaction = drop_stray;
	} else if (timer_runs && !timer_is_wanted) {
		/* Its signal would not be dropped. */
		const struct itimerval none = { 0 };
		setitimer(ITIMER_PROF, &none, &(struct itimerval) { 0 });
	}
	int result = real_sigaction(SIGPROF, &ours, NULL);
	if (result == 0) {
		action_of_php = *action;
		/* The kernel itself resets such a handler. */
		action_is_known = !(action->sa_flags & SA_RESETHAND);
	}
	return result;
}

int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	if (!real_sigaction) {
		real_sigaction = real("sigaction");
	}
	if (number != SIGPROF) {
		return real_sigaction(number, action, old);
	}
	if (old) {
		int result = real_sigaction(SIGPROF, NULL, old);
		if (result != 0) {
			return result;
		}
		if ((old->sa_flags & SA_SIGINFO) && old->sa_sigaction == drop_stray) {
			*old = action_of_php;
		}
	}
	if (!action || (action_is_known && is_same(action, &action_of_php))) {
		return 0;
	}
	return set_action(action);
}

/* Whether a call only unblocks the timer's signal. */
static bool unblocks_signal(int how, const sigset_t *set, const sigset_t *old)
{
	sigset_t only;

	if (how != SIG_UNBLOCK || !set || old) {
		return false;
	}
	sigemptyset(&only);
	sigaddset(&only, SIGPROF);
	return memcmp(set, &only, MASK_BYTES) == 0;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	if (!real_sigprocmask) {
		real_sigprocmask = real("sigprocmask");
	}
	if (!unblocks_signal(how, set, old)) {
		if (set) {
			signal_is_unblocked = 0;
		}
		return real_sigprocmask(how, set, old);
	}
	if (signal_is_unblocked) {
		return 0;
	}
	int result = real_sigprocmask(how, set, old);
	signal_is_unblocked = result == 0;
	return result;
}
