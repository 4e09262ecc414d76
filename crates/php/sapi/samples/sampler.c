/* The sampler: a thread beside PHP in each worker.
 *
 * It sleeps on its doorbell, until a request has run for too long, or until the next sample of a profile. To take a sample
 * it interrupts PHP's virtual machine, and PHP's thread records its own stack at its next safe point. An internal function
 * has no safe point: then, or when PHP does not reach one in time, the sampler reads the stack itself. It sends no signal
 * for that, because a signal would cut sleep() short.
 *
 * A request that is to end is ended like by PHP's own max_execution_time. Only then a signal wakes PHP from a system call.
 *
 * The sampler never allocates, and takes no lock that would stay taken in a fork of PHP's thread. Without it (when no
 * thread can be started) there are no samples, and the supervisor kills the worker instead. */

#include "samples/sampler.h"
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
/* The time that PHP has to reach a safe point. */
#define SAFE_POINT_TIMEOUT (20 * MILLISECOND)
/* The pause between two wake-ups of PHP for the end of its request. */
#define WAKE_UP_PAUSE (100 * MILLISECOND)
/* The longest time between two samples of a slow request. */
#define LONGEST_SPACING (60000 * MILLISECOND)
/* After this number of samples without a request, a profile waits for the next request. */
#define IDLE_TICKS 10
#define MOST_PER_SECOND 1000
#define STACK_BYTES (128 * 1024)
#define WAKE_UP (SIGRTMIN + 6)

/* The tasks of PHP's thread: record its stack for the slow log, for a profile, for limits/timeout; end its request. */
enum { SLOW = 1, PROFILE = 2, LIMIT = 4, END = 8 };

static struct howdah_sampler_setup setup;
static bool runs;
static pid_t process, php_thread;
static void (*next_interrupt)(zend_execute_data *execute_data);

/* Shared by both threads. */
static _Atomic uint64_t began; /* 0: no request */
/* Async mode: the script holds requests. A profile samples all of its work. */
static _Atomic bool loop_holds;
static _Atomic uint32_t tasks;
/* The request that the tasks in `tasks` belong to. */
static _Atomic uint64_t tasks_request;
/* A request wakes the sampler at its start if it is due for a sample before this time. */
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
	/* When the sampler takes the tasks of PHP's thread back. */
	uint64_t safe_point_deadline;
	bool is_ending;
	uint64_t next_wake_up;
} watched;
static uint64_t next_tick;
static uint32_t idle_ticks;

uint64_t howdah_monotonic(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000 * MILLISECOND + (uint64_t) now.tv_nsec;
}

static void record(enum howdah_author author, uint32_t what, const struct howdah_backtrace *backtrace,
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

/* Whether the supervisor has ordered this request to end. */
static bool is_to_end(void)
{
	return __atomic_load_n(setup.end, __ATOMIC_SEQ_CST) == atomic_load(&began);
}

/* PHP calls this at a safe point. */
static void interrupted(zend_execute_data *execute_data)
{
	uint32_t what = runs && !howdah_forked ? atomic_exchange(&tasks, 0) : 0;

	/* The tasks may belong to the former request. */
	if (what && atomic_load(&tasks_request) != atomic_load(&began)) {
		what &= PROFILE;
	}
	if (what & (LIMIT | END) && !is_to_end()) {
		what &= ~(uint32_t) (LIMIT | END);
	}
	if (what & (SLOW | PROFILE | LIMIT)) {
		howdah_backtrace_own(&php_backtrace, execute_data);
		record(HOWDAH_PHP, what, &php_backtrace, always);
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

void howdah_sampler_install(void)
{
	next_interrupt = zend_interrupt_function;
	zend_interrupt_function = interrupted;
}

static void wake_sampler(void)
{
	atomic_store(&sleeps_until, 0);
	__atomic_fetch_add((uint32_t *) setup.bell, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, setup.bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void howdah_sampler_begin(const struct howdah_request *request)
{
	if (!runs) {
		return;
	}
	howdah_log_begin(request);
	howdah_backtrace_forget(&php_backtrace);
	atomic_store(&tasks, 0);
	atomic_store(&written, 0);
	atomic_store(&began, request->began);
	if (request->began + setup.slow_threshold < atomic_load(&sleeps_until)) {
		wake_sampler();
	}
}

void howdah_sampler_loop(int holds_requests)
{
	if (!runs) {
		return;
	}
	atomic_store(&loop_holds, holds_requests != 0);
	if (holds_requests && atomic_load(&sleeps_until) == NEVER && __atomic_load_n(setup.rate, __ATOMIC_SEQ_CST) > 0) {
		wake_sampler();
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
	if (atomic_exchange(&tasks, 0) & PROFILE) {
		/* It reached no safe point. Without this, short requests would be missing. */
		php_backtrace.depth = php_backtrace.is_cut = 0;
		php_backtrace.waits_in[0] = '\0';
		howdah_log_profile(HOWDAH_PHP, &php_backtrace);
	}
	if (atomic_exchange(&written, 0)) {
		howdah_log_sample(HOWDAH_PHP, HOWDAH_END, 0, NULL, always);
	}
}

/* Such a worker is not reusable: a connection to a database may be in the middle of an answer. */
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

static void order(uint32_t what)
{
	atomic_store(&tasks_request, watched.began);
	atomic_fetch_or(&tasks, what);
	interrupt();
}

static void sample(uint32_t what, uint64_t now)
{
	if (howdah_is_in_internal_function() && howdah_backtrace_foreign(&sampler_backtrace) && is_current()) {
		record(HOWDAH_SAMPLER, what, &sampler_backtrace, is_current);
		return;
	}
	order(what);
	if (what & (SLOW | LIMIT)) {
		watched.safe_point_deadline = now + SAFE_POINT_TIMEOUT;
	}
}

/* The sampler does the tasks that PHP's thread has not done. */
static void take_back(uint32_t what)
{
	uint32_t left = atomic_fetch_and(&tasks, ~what) & what;

	if (left) {
		if (!howdah_backtrace_foreign(&sampler_backtrace) && !howdah_backtrace_foreign(&sampler_backtrace)) {
			sampler_backtrace.depth = 0;
			sampler_backtrace.is_cut = 1;
		}
		if (is_current()) {
			record(HOWDAH_SAMPLER, left, &sampler_backtrace, is_current);
		}
	}
}

/* Does what is due for the current request; returns the time when something is due again. */
static uint64_t look_at_request(uint64_t now)
{
	uint64_t next = NEVER;

	if (watched.safe_point_deadline && now >= watched.safe_point_deadline) {
		watched.safe_point_deadline = 0;
		take_back(SLOW | LIMIT);
	}
	if (!watched.is_ending && __atomic_load_n(setup.end, __ATOMIC_SEQ_CST) == watched.began) {
		watched.is_ending = true;
		sample(LIMIT, now);
		watched.next_wake_up = now + (watched.safe_point_deadline ? SAFE_POINT_TIMEOUT : 0);
		order(END);
	}
	if (watched.is_ending && atomic_load(&tasks) & END) {
		if (now >= watched.next_wake_up && is_current()) {
			watched.next_wake_up = now + WAKE_UP_PAUSE;
			interrupt();
			syscall(SYS_tgkill, process, php_thread, WAKE_UP);
		}
		next = watched.next_wake_up;
	}
	if (setup.slow_log >= 0 && watched.samples < setup.slow_samples) {
		if (now >= watched.next_sample) {
			uint64_t elapsed = now - watched.began;
			atomic_store(&sample_number, ++watched.samples);
			watched.next_sample = now + (elapsed < LONGEST_SPACING ? elapsed : LONGEST_SPACING);
			sample(SLOW, now);
		}
		if (watched.samples < setup.slow_samples && watched.next_sample < next) {
			next = watched.next_sample;
		}
	}
	return watched.safe_point_deadline && watched.safe_point_deadline < next ? watched.safe_point_deadline : next;
}

static uint64_t look_at_profile(uint64_t now, uint32_t rate)
{
	uint64_t period = 1000 * MILLISECOND / rate;

	if (now >= next_tick + period) {
		/* The sampler has slept while there was nothing to do: a sample now would always show the start of a request. */
		next_tick = now + period;
		idle_ticks = 0;
	} else if (now >= next_tick) {
		next_tick += period;
		take_back(PROFILE);
		if (watched.began || atomic_load(&loop_holds)) {
			sample(PROFILE, now);
		}
		idle_ticks++;
	}
	if (watched.began || atomic_load(&loop_holds)) {
		idle_ticks = 0;
	}
	return idle_ticks < IDLE_TICKS ? next_tick : NEVER;
}

/* Does what is due; returns the time when something is due again. */
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
		/* Any process that shares the channel can write this word. */
		uint64_t tick = look_at_profile(now, rate < MOST_PER_SECOND ? rate : MOST_PER_SECOND);
		next = tick < next ? tick : next;
	}
	/* The present request may end before `next`: the next request must not wait for that time. A profile has its own times. */
	if (setup.slow_log >= 0 || (rate > 0 && next == NEVER)) {
		atomic_store(&sleeps_until, next);
		if (atomic_load(&began) != watched.began || (rate > 0 && next == NEVER && atomic_load(&loop_holds))) {
			return now;
		}
	}
	return next;
}

static void *run(void *unused)
{
	(void) unused;
	for (;;) {
		/* Load it before the checks: a change from here on ends the sleep immediately. */
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

/* A system call that this interrupts returns: no more is necessary. */
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
	/* PHP's thread handles all signals to the process. */
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
