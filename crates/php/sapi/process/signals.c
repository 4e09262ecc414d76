/* Signals: handlers, blocked signals and alarms that a script sets do not outlive its request.
 *
 * PHP checks its own seven handlers at the start of each request, and howdah unblocks all signals at the end: eight system
 * calls for each request, and only a script that uses pcntl changes anything. Therefore the functions of pcntl that change
 * signals are wrapped, and what they changed is restored after the request. An extension can change signals, too, without
 * such a function: each worker checks the handlers and unblocks all signals at each CHECK_EVERY-th request.
 *
 * Nothing here fails: a signal whose handler cannot be set (SIGKILL) could not be changed either. */

#include "howdah_sapi.h"
#include "process/time_limit.h"
#include "process/wrap.h"
#include "zend_signal.h"
#include <signal.h>
#include <unistd.h>

#define CHECK_EVERY 64

static unsigned requests;
static int has_alarm, has_blocked, has_handlers;
/* The handlers before the script set its first one. */
static struct sigaction handlers[NSIG];
static zif_handler pcntl_alarm, pcntl_sigprocmask, pcntl_signal;

static ZEND_NAMED_FUNCTION(note_alarm)
{
	has_alarm = 1;
	pcntl_alarm(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_NAMED_FUNCTION(note_blocked)
{
	has_blocked = 1;
	pcntl_sigprocmask(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_NAMED_FUNCTION(note_handlers)
{
	if (!has_handlers) {
		has_handlers = 1;
		for (int number = 1; number < NSIG; number++) {
			sigaction(number, NULL, &handlers[number]);
		}
	}
	pcntl_signal(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void howdah_signals_wrap(void)
{
	howdah_wrap("pcntl_alarm", note_alarm, &pcntl_alarm);
	howdah_wrap("pcntl_sigprocmask", note_blocked, &pcntl_sigprocmask);
	howdah_wrap("pcntl_signal", note_handlers, &pcntl_signal);
}

/* A preload script's handlers were replaced by the worker's own since, and a fork inherits no alarm. */
void howdah_signals_after_fork(void)
{
	has_alarm = has_handlers = 0;
}

/* Handlers, alarms and blocked signals that a worker script's boot has set stay for all of its requests. */
void howdah_signals_after_boot(void)
{
	has_alarm = has_handlers = has_blocked = 0;
}

/* Whether PHP checks its handlers when this request starts. */
void howdah_signals_before_request(void)
{
	int checks = requests % CHECK_EVERY == 0;

#ifdef ZEND_SIGNALS
	SIGG(reset) = checks;
#endif
	if (checks) {
		howdah_time_limit_check();
	}
	requests++;
}

/* An alarm would kill the request that runs when it goes off. One that went off while it was blocked is pending: it is
 * dropped when the signal is ignored. */
static void disarm(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before;

	alarm(0);
	sigaction(SIGALRM, &ignore, &before);
	sigaction(SIGALRM, &before, NULL);
}

void howdah_signals_after_request(void)
{
	if (has_alarm) {
		disarm();
	}
	if (has_handlers) {
		for (int number = 1; number < NSIG; number++) {
			sigaction(number, &handlers[number], NULL);
		}
	}
	if (has_blocked || requests % CHECK_EVERY == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
	}
	has_alarm = has_handlers = has_blocked = 0;
}
