/* The sampler: a thread beside PHP in each worker.
 *
 * It sleeps on its bell, or until a request has run for too long, or until the next sample of a profile. To take a sample
 * it interrupts PHP's virtual machine, and PHP's thread writes down its own stack at its next safe point. A function of
 * PHP's own has none: then, or when PHP has not answered in time, the sampler reads the stack itself. No signal is sent
 * for that: it would cut sleep() short.
 *
 * A request that shall end is ended as by PHP's own max_execution_time. Only then a signal wakes PHP from a system call.
 *
 * The sampler never allocates, and takes no lock that PHP could find taken after a fork. Without it (too many threads)
 * there are no samples, and the supervisor kills in its place. */

#include "sampler.h"
#include "php_globals.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NEVER UINT64_MAX
#define MILLISECOND UINT64_C(1000000)
/* So long PHP has for coming to a safe point. */
#define PATIENCE (20 * MILLISECOND)
/* How often PHP is woken for the end of its request. */
#define PUSH (100 * MILLISECOND)
/* Samples of one slow request are not further apart. */
#define LONGEST_SPACING (60000 * MILLISECOND)
/* After so many samples without a request a profile waits for the next one. */
#define IDLE_TICKS 10
#define MOST_PER_SECOND 1000
#define STACK_BYTES (128 * 1024)
#define WAKE_UP (SIGRTMIN + 6)

/* What PHP's thread is asked for. */
enum { SLOW = 1, PROFILE = 2, LIMIT = 4, END = 8 };

static struct howdah_sampler_setup setup;
static bool runs;
static pid_t process, php_thread;
static void (*next_interrupt)(zend_execute_data *execute_data);

/* Of both threads. */
static _Atomic uint64_t began; /* 0: no request */
static _Atomic uint32_t asked;
/* The request that PHP's thread was asked about the last time. */
static _Atomic uint64_t asked_of;
/* A request that has to be looked at before this wakes the sampler when it begins. */
static _Atomic uint64_t sleeps_until;
static _Atomic uint32_t sample_number;
static _Atomic uint32_t written;

/* PHP's thread. */
static bool ended;
static struct howdah_backtrace php_backtrace;

/* The sampler. */
static struct howdah_backtrace sampler_backtrace;
static struct {
	uint64_t began;
	uint32_t samples;
	uint64_t next_sample;
	/* When what PHP was asked for is done without it. */
	uint64_t patience_ends;
	bool is_ending;
	uint64_t next_push;
} watched;
static uint64_t next_tick;
static uint32_t idle_ticks;

uint64_t howdah_monotonic(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000 * MILLISECOND + (uint64_t) now.tv_nsec;
}

static void write_down(enum howdah_author author, uint32_t what, const struct howdah_backtrace *backtrace,
	bool (*is_current)(void))
{
	if (what & PROFILE) {
		howdah_log_profile(author, backtrace);
	}
	if (what & LIMIT) {
		howdah_log_limit(author, backtrace, is_current);
	}
	if ((what & (SLOW | LIMIT)) && setup.slow_log >= 0) {
		howdah_log_sample(author, what & LIMIT ? HOWDAH_LIMIT : HOWDAH_SLOW, atomic_load(&sample_number), backtrace,
			is_current);
		if (is_current()) {
			atomic_store(&written, 1);
		}
	}
}

/* ---- PHP's thread ---- */

static bool always(void)
{
	return true;
}

/* The supervisor wants this request to end. */
static bool shall_end(void)
{
	return __atomic_load_n(setup.end, __ATOMIC_SEQ_CST) == atomic_load(&began);
}

/* PHP is at a safe point. */
static void interrupted(zend_execute_data *execute_data)
{
	uint32_t what = runs && !howdah_forked ? atomic_exchange(&asked, 0) : 0;

	/* The sampler may have meant the request before. */
	if (what && atomic_load(&asked_of) != atomic_load(&began)) {
		what &= PROFILE;
	}
	if (what & (LIMIT | END) && !shall_end()) {
		what &= ~(uint32_t) (LIMIT | END);
	}
	if (what & (SLOW | PROFILE | LIMIT)) {
		howdah_backtrace_own(&php_backtrace, execute_data);
		write_down(HOWDAH_PHP, what, &php_backtrace, always);
	}
	if (what & END) {
		ended = true;
		PG(connection_status) |= PHP_CONNECTION_TIMEOUT;
		zend_error_noreturn(E_ERROR, "The request has taken longer than limits/timeout allows");
	}
	if (next_interrupt) {
		next_interrupt(execute_data);
	}
}

void howdah_sampler_listen(void)
{
	next_interrupt = zend_interrupt_function;
	zend_interrupt_function = interrupted;
}

void howdah_sampler_begin(const struct howdah_request *request)
{
	if (!runs) {
		return;
	}
	howdah_log_begin(request);
	howdah_backtrace_forget(&php_backtrace);
	atomic_store(&asked, 0);
	atomic_store(&written, 0);
	atomic_store(&began, request->began);
	if (request->began + setup.slow_threshold < atomic_load(&sleeps_until)) {
		atomic_store(&sleeps_until, 0);
		__atomic_fetch_add((uint32_t *) setup.bell, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, setup.bell, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

void howdah_sampler_before_cleaning(void)
{
	if (runs && atomic_load(&written)) {
		howdah_log_memory();
	}
}

void howdah_sampler_finish(void)
{
	if (!runs) {
		return;
	}
	atomic_store(&began, 0);
	if (atomic_exchange(&asked, 0) & PROFILE) {
		/* It came to no safe point any more. Without this, short requests would not be seen. */
		php_backtrace.depth = php_backtrace.is_cut = 0;
		php_backtrace.waits_in[0] = '\0';
		howdah_log_profile(HOWDAH_PHP, &php_backtrace);
	}
	if (atomic_exchange(&written, 0)) {
		howdah_log_sample(HOWDAH_PHP, HOWDAH_END, 0, NULL, always);
	}
}

/* After that a worker is not what it was: a connection to a database may be in the middle of an answer. */
int howdah_sampler_has_ended_a_request(void)
{
	return ended;
}

/* ---- the sampler ---- */

static bool is_current(void)
{
	return atomic_load(&began) == watched.began;
}

static void interrupt(void)
{
#if PHP_VERSION_ID >= 80200
	zend_atomic_bool_store(&EG(vm_interrupt), true);
#else
	__atomic_store_n(&EG(vm_interrupt), true, __ATOMIC_SEQ_CST);
#endif
}

static void ask_php(uint32_t what)
{
	atomic_store(&asked_of, watched.began);
	atomic_fetch_or(&asked, what);
	interrupt();
}

static void ask(uint32_t what, uint64_t now)
{
	if (howdah_is_in_internal_function() && howdah_backtrace_foreign(&sampler_backtrace) && is_current()) {
		write_down(HOWDAH_SAMPLER, what, &sampler_backtrace, is_current);
		return;
	}
	ask_php(what);
	if (what & (SLOW | LIMIT)) {
		watched.patience_ends = now + PATIENCE;
	}
}

/* What PHP has not answered is done without it. */
static void take_back(uint32_t what)
{
	uint32_t left = atomic_fetch_and(&asked, ~what) & what;

	if (left) {
		if (!howdah_backtrace_foreign(&sampler_backtrace) && !howdah_backtrace_foreign(&sampler_backtrace)) {
			sampler_backtrace.depth = 0;
			sampler_backtrace.is_cut = 1;
		}
		if (is_current()) {
			write_down(HOWDAH_SAMPLER, left, &sampler_backtrace, is_current);
		}
	}
}

/* All that is due for the request that runs; returns when something is due again. */
static uint64_t look_at_request(uint64_t now)
{
	uint64_t next = NEVER;

	if (watched.patience_ends && now >= watched.patience_ends) {
		watched.patience_ends = 0;
		take_back(SLOW | LIMIT);
	}
	if (!watched.is_ending && __atomic_load_n(setup.end, __ATOMIC_SEQ_CST) == watched.began) {
		watched.is_ending = true;
		ask(LIMIT, now);
		watched.next_push = now + (watched.patience_ends ? PATIENCE : 0);
		ask_php(END);
	}
	if (watched.is_ending && atomic_load(&asked) & END) {
		if (now >= watched.next_push && is_current()) {
			watched.next_push = now + PUSH;
			interrupt();
			syscall(SYS_tgkill, process, php_thread, WAKE_UP);
		}
		next = watched.next_push;
	}
	if (setup.slow_log >= 0 && watched.samples < setup.slow_samples) {
		if (now >= watched.next_sample) {
			uint64_t elapsed = now - watched.began;
			atomic_store(&sample_number, ++watched.samples);
			watched.next_sample = now + (elapsed < LONGEST_SPACING ? elapsed : LONGEST_SPACING);
			ask(SLOW, now);
		}
		if (watched.samples < setup.slow_samples && watched.next_sample < next) {
			next = watched.next_sample;
		}
	}
	return watched.patience_ends && watched.patience_ends < next ? watched.patience_ends : next;
}

static uint64_t look_at_profile(uint64_t now, uint32_t rate)
{
	uint64_t period = 1000 * MILLISECOND / rate;

	if (now >= next_tick + period) {
		/* It has slept while there was nothing to do: a sample now would tell how requests begin. */
		next_tick = now + period;
		idle_ticks = 0;
	} else if (now >= next_tick) {
		next_tick += period;
		take_back(PROFILE);
		if (watched.began) {
			ask(PROFILE, now);
		}
		idle_ticks++;
	}
	if (watched.began) {
		idle_ticks = 0;
	}
	return idle_ticks < IDLE_TICKS ? next_tick : NEVER;
}

/* Does what is due; returns when something is due again. */
static uint64_t step(uint64_t now)
{
	uint64_t current = atomic_load(&began), next = NEVER;
	uint32_t rate = __atomic_load_n(setup.rate, __ATOMIC_SEQ_CST);

	if (current != watched.began) {
		memset(&watched, 0, sizeof(watched));
		watched.began = current;
		watched.next_sample = current + setup.slow_threshold;
		howdah_backtrace_forget(&sampler_backtrace);
	}
	if (current) {
		next = look_at_request(now);
	}
	if (rate > 0) {
		/* The word can be written by anyone who shares the channel. */
		uint64_t tick = look_at_profile(now, rate < MOST_PER_SECOND ? rate : MOST_PER_SECOND);
		next = tick < next ? tick : next;
	}
	/* What is slept for may be a request that ends before: the next one must not wait for it. A profile has its own beat. */
	if (setup.slow_log >= 0 || (rate > 0 && next == NEVER)) {
		atomic_store(&sleeps_until, next);
		if (atomic_load(&began) != watched.began) {
			return now;
		}
	}
	return next;
}

static void *run(void *unused)
{
	(void) unused;
	for (;;) {
		/* Before anything is looked at: what changes from here on ends the sleep at once. */
		uint32_t seen = __atomic_load_n(setup.bell, __ATOMIC_SEQ_CST);
		uint64_t next = step(howdah_monotonic()), now = howdah_monotonic();
		if (next > now) {
			struct timespec left = { (time_t) ((next - now) / (1000 * MILLISECOND)),
				(long) ((next - now) % (1000 * MILLISECOND)) };
			syscall(SYS_futex, setup.bell, FUTEX_WAIT, seen, next == NEVER ? NULL : &left, NULL, 0);
		}
	}
	return NULL;
}

/* A system call of PHP's that this interrupts returns: that is all. */
static void wake_up(int signal)
{
	(void) signal;
}

int howdah_sampler_start(const struct howdah_sampler_setup *new_setup)
{
	struct sigaction action = { .sa_handler = wake_up };
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;

	setup = *new_setup;
	process = getpid();
	php_thread = (pid_t) syscall(SYS_gettid);
	howdah_backtrace_remember_thread();
	howdah_log_set_up(&setup);
	sigaction(WAKE_UP, &action, NULL);
	/* Signals to the process are PHP's to handle. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	int error = pthread_create(&thread, &attributes, run, NULL);
	pthread_attr_destroy(&attributes);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error == 0) {
		pthread_setname_np(thread, "sampler");
		runs = true;
	}
	return error;
}
