/* The state of PHP at the end of a worker script's boot, and how it is restored after each request.
 *
 * It is the state that PHP itself resets at the end of a classic request, as far as a request can see what the one before
 * has left: settings, handlers of errors and exceptions, shutdown and tick functions, stream wrappers, session handlers, the
 * default stream context, timezone, locale, folder, umask, environment, random seeds, and state of some extensions. The state that the boot has set stays.
 *
 * Most requests change none of it. Each part is compared first, and the comparison makes no system call. */

#include "worker_mode/baseline/baseline.h"
#include "worker_mode/baseline/parts.h"
#include "howdah_sapi.h"
#include "php.h"
#include "php_globals.h"
#include "zend_exceptions.h"
#include "zend_ini.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/php_filestat.h"

void *howdah_globals_of(const char *name)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, name, strlen(name));

	return module ? module->globals_ptr : NULL;
}

void howdah_baseline_watch(void)
{
	howdah_watch_process();
	howdah_watch_extensions();
	howdah_watch_libxml();
}

void howdah_baseline_begin(void)
{
	howdah_begin_libxml();
}

void howdah_baseline_take(void)
{
	howdah_take_settings();
	howdah_take_handlers();
	howdah_take_functions();
	howdah_take_streams();
	howdah_take_sessions();
	howdah_take_process();
	howdah_take_extensions();
	howdah_take_libxml();
}

void howdah_baseline_end(void)
{
	howdah_return_functions();
}

static void forget_last_error(void)
{
	PG(last_error_type) = 0;
	PG(last_error_lineno) = 0;
	if (PG(last_error_message)) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
		PG(last_error_file) = NULL;
	}
}

static void forget_strtok(void)
{
	if (BG(strtok_string)) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
	}
	BG(strtok_last) = NULL;
	BG(strtok_len) = 0;
}

/* A destructor of the request's handlers has thrown. No code of the application can catch that any more. */
static void report_exception(void)
{
	typeof(PG(display_errors)) displays = PG(display_errors);

	if (!EG(exception)) {
		return;
	}
	if (zend_is_unwind_exit(EG(exception)) || zend_is_graceful_exit(EG(exception))) {
		zend_clear_exception();
		return;
	}
	/* The response is complete. */
	PG(display_errors) = 0;
	zend_exception_error(EG(exception), E_ERROR);
	PG(display_errors) = displays;
}

int howdah_baseline_restore(void)
{
	volatile int is_restored = 0;

	/* A destructor may end with a fatal error. */
	zend_try {
		howdah_restore_handlers();
		report_exception();
		howdah_restore_functions();
		report_exception();
		howdah_restore_context();
		report_exception();
		howdah_restore_sessions();
		report_exception();
		is_restored = howdah_restore_wrappers();
		howdah_restore_settings();
		howdah_restore_process();
		howdah_restore_extensions();
		report_exception();
		is_restored = howdah_restore_libxml() && is_restored;
		report_exception();
		forget_last_error();
		forget_strtok();
		php_clear_stat_cache(0, NULL, 0);
		howdah_forget_mt_seed();
		zend_set_memory_limit(PG(memory_limit));
#if PHP_VERSION_ID >= 80200
		zend_memory_reset_peak_usage();
#endif
	} zend_catch {
		is_restored = 0;
	} zend_end_try();
	return is_restored;
}
