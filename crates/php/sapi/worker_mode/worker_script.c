/* Worker mode: the worker script boots, and then handles one request after another in handle_request().
 *
 * For PHP's engine the whole life of the worker script is one request, without a client. Within it, each HTTP request
 * has its own output layer, headers, superglobals, session, time limit and shutdown functions: begin_request() and
 * end_request() do for them what PHP does at the start and at the end of a request. baseline/ restores the rest of PHP's
 * state that a request may have changed; the application's own objects stay.
 *
 * exit(), an uncaught exception and a client that is gone end the request only. After a fatal error PHP's engine is not
 * usable: the error ends the script, whose own end completes the response. The worker exits then. Most fatal errors are
 * bailouts; some versions of PHP throw an unwind exit when the memory limit is reached. */

#include "worker_mode/worker_script.h"
#include "worker_mode/async/async.h"
#include "worker_mode/baseline/baseline.h"
#include "exchange.h"
#include "functions/frankenphp.h"
#include "opcache.h"
#include "samples/sampler.h"
#include "variables.h"
#include "worker_mode/kept_memory.h"
#include "worker_mode/modules.h"
#include "worker_mode/superglobals.h"
#include "php_main.h"
#include "php_output.h"
#include "SAPI.h"
#include "zend_exceptions.h"
#include "ext/standard/basic_functions.h"
#include <errno.h>
#include <unistd.h>

/* The phase of the worker script. */
static enum {
	NOT_STARTED,
	BOOTS,
	/* It waits for a request, or runs code between two requests. */
	BETWEEN_REQUESTS,
	/* PHP reads the request. */
	BEGINS_REQUEST,
	/* The handler runs. */
	HANDLES_REQUEST,
	/* Shutdown functions run, the session is written, the response is completed. */
	ENDS_REQUEST,
	/* Async mode: it runs its event loop. */
	LOOPS,
	/* handle_request() has returned false. */
	ENDS,
} phase;

static int is_configured, is_async;
/* A fatal error has left PHP's engine in a state in which no other request may run. */
static int is_damaged;
static const struct howdah_request *boot_request;
static void (*next_error_handler)(int type, zend_string *file, const uint32_t line, zend_string *message);

/* max_execution_time at the end of the boot. Each request begins with it. */
static zend_long time_limit;

void howdah_php_enable_worker_script(int is_async_script)
{
	is_configured = 1;
	is_async = is_async_script;
}

/* The functions of worker mode remain, and throw: opcache shares the scripts that were compiled for the other workers, in
 * which it has already answered function_exists(). */
void howdah_php_leave_worker_mode(void)
{
	is_configured = 0;
}

int howdah_worker_script_is_async(void)
{
	return is_async;
}

int howdah_worker_script_is_configured(void)
{
	return is_configured;
}

int howdah_worker_script_is_booted(void)
{
	return phase > BOOTS;
}

static int is_in_request(void)
{
	return phase == BEGINS_REQUEST || phase == HANDLES_REQUEST || phase == ENDS_REQUEST;
}

/* ---- outside of a request ---- */

int howdah_worker_script_has_no_client(void)
{
	return phase != NOT_STARTED && !is_in_request();
}

size_t howdah_worker_script_write(const char *bytes, size_t len)
{
	size_t written = 0;

	while (written < len) {
		ssize_t result = write(STDERR_FILENO, bytes + written, len - written);
		if (result < 0 && errno != EINTR) {
			break;
		}
		written += result > 0 ? (size_t) result : 0;
	}
	/* A log that is full must not end the script. */
	return len;
}

/* While the script boots, its errors go to standard error, once: the answer about the start quotes them. Afterwards this
 * only notes fatal errors. */
static void handle_error(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	if (type & E_FATAL_ERRORS && !(type & E_DONT_BAIL)) {
		is_damaged = 1;
	}
	if (phase != BOOTS) {
		next_error_handler(type, file, line, message);
		return;
	}
	bool logs = PG(log_errors);
	typeof(PG(display_errors)) displays = PG(display_errors);
	char *log = PG(error_log);

	PG(log_errors) = true;
	PG(display_errors) = 0;
	PG(error_log) = NULL;
	/* After a fatal error this does not return, and the worker exits. */
	next_error_handler(type, file, line, message);
	PG(log_errors) = logs;
	PG(display_errors) = displays;
	PG(error_log) = log;
}

/* ---- the end of a script before its last line ---- */

/* Like exit(). Functions of PHP and its virtual machine check for an exception when they return. */
static void throw_unwind_exit(void)
{
	zend_execute_data *frame = EG(current_execute_data);

	EG(exception) = zend_create_unwind_exit();
	if (frame->func && ZEND_USER_CODE(frame->func->common.type) && frame->opline->opcode != ZEND_HANDLE_EXCEPTION) {
		EG(opline_before_exception) = frame->opline;
		frame->opline = EG(exception_op);
	}
}

int howdah_worker_script_unwinds(void)
{
	if (phase != HANDLES_REQUEST && phase != ENDS_REQUEST) {
		return 0;
	}
	if (EG(current_execute_data) && !EG(exception)) {
		throw_unwind_exit();
	}
	return 1;
}

static bool is_exit(zend_object *exception)
{
	return zend_is_unwind_exit(exception) || zend_is_graceful_exit(exception);
}

/* No PHP code of the script may run any more. */
static void end_script(void)
{
	if (EG(exception)) {
		zend_clear_exception();
	}
	EG(exception) = zend_create_unwind_exit();
}

/* The loop runs in a fiber, and its handler has called Fiber::suspend(). The script has ended meanwhile, or PHP destroys the
 * fiber. The output since then is no answer to the request. */
static void reject_suspended_handler(void)
{
	if (EG(exception)) {
		zend_clear_exception();
	}
	php_output_discard_all();
	zend_error_noreturn(E_ERROR, "The handler of a request called Fiber::suspend() outside of its own fibers, and was not "
		"resumed; start the fiber within the handler");
}

/* The handler has returned, or has ended with exit() or an exception. */
static void settle_exception(void)
{
	if (EG(exception) && !is_exit(EG(exception))) {
		zend_execute_data *frame = EG(current_execute_data);
		/* As at the end of a script: then an exception of the exception handler is reported, with a bailout. */
		EG(current_execute_data) = NULL;
		zend_try {
			if (Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
				zend_user_exception_handler();
			}
			if (EG(exception) && !is_exit(EG(exception))) {
				zend_exception_error(EG(exception), E_ERROR);
			}
		} zend_end_try();
		EG(current_execute_data) = frame;
	}
	if (EG(exception)) {
		zend_clear_exception();
	}
}

/* ---- the start and the end of a request ---- */

static void set_time_limit_of_request(void)
{
	if (time_limit > 0) {
		zend_set_timeout(time_limit, 0);
	} else {
		EG(timeout_seconds) = 0;
	}
}

static void start_output(void)
{
	php_output_activate();
	PG(header_is_being_sent) = 0;
	PG(connection_status) = PHP_CONNECTION_NORMAL;
}

static void start_configured_buffer(void)
{
	if (PG(output_handler) && PG(output_handler)[0]) {
		zval handler;

		ZVAL_STRING(&handler, PG(output_handler));
		php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		zval_ptr_dtor(&handler);
	} else if (PG(output_buffering)) {
		php_output_start_user(NULL, PG(output_buffering) > 1 ? (size_t) PG(output_buffering) : 0,
			PHP_OUTPUT_HANDLER_STDFLAGS);
	} else if (PG(implicit_flush)) {
		php_output_set_implicit_flush(1);
	}
}

/* PHP's own start of a request, without the engine. 0 if the client's body did not arrive. */
static int begin_request(const struct howdah_request *request)
{
	volatile int has_begun = 0;
	zval error_handler_of_boot;
	const int former_handlers = zend_stack_count(&EG(user_error_handlers));

	phase = BEGINS_REQUEST;
	howdah_exchange_begin(request, 1);
	howdah_signals_before_request();
	EG(exit_status) = 0;
	/* exit() in a shutdown function is a bailout. */
	CG(unclean_shutdown) = 0;
	/*
	 * PHP warns when it cannot take a body or variables whole (post_max_size, max_input_vars). In classic mode no error
	 * handler exists then, and the application rejects the request itself. Error handlers of frameworks throw.
	 */
	ZVAL_COPY_VALUE(&error_handler_of_boot, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	zend_try {
		start_output();
		sapi_activate();
		SG(sapi_started) = 1;
		if (PG(expose_php)) {
			sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
		}
		start_configured_buffer();
		howdah_superglobals_refresh();
		howdah_modules_start();
		set_time_limit_of_request();
		has_begun = 1;
	} zend_end_try();
	if (zend_stack_count(&EG(user_error_handlers)) > former_handlers) {
		/* The open() of a session has set another one: restore_error_handler() leads from it to that of the boot. */
		ZVAL_COPY_VALUE((zval *) zend_stack_base(&EG(user_error_handlers)) + former_handlers, &error_handler_of_boot);
	} else {
		ZVAL_COPY_VALUE(&EG(user_error_handler), &error_handler_of_boot);
	}
	if (!has_begun && !howdah_exchange_lost_its_body()) {
		zend_bailout();
	}
	return has_begun;
}

/* Closes what PHP keeps for a request: buffers, session, headers, body. The response is complete then. */
static void close_request(void)
{
	zend_try {
		php_output_end_all();
	} zend_end_try();
	zend_unset_timeout();
	howdah_modules_stop();
	howdah_variables_forget();
	howdah_exchange_drops_body();
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	php_stream *body = SG(request_info).request_body;
	zend_try {
		sapi_deactivate();
	} zend_end_try();
	howdah_superglobals_close_body(body);
}

/* The end of a request, or of the code between two: shutdown functions run, and all that PHP keeps for a request is
 * closed. */
static void complete_request(void)
{
	zend_execute_data *frame = EG(current_execute_data);

	/* As at the end of a script: then an exception in a shutdown function is reported, and ends the function. */
	EG(current_execute_data) = NULL;
	php_call_shutdown_functions();
	close_request();
	php_free_shutdown_functions();
	EG(current_execute_data) = frame;
	if (EG(exception)) {
		zend_clear_exception();
	}
	howdah_superglobals_forget_session();
}

static void restore_baseline(void)
{
	if (!howdah_baseline_restore()) {
		is_damaged = 1;
	}
}

/* Code of the script may run between two requests, for instance the end of the application's own request. Its output
 * goes to the log. */
static void open_interlude(void)
{
	phase = BETWEEN_REQUESTS;
	start_output();
	sapi_activate();
}

/* Whether that code has left anything that the next request could meet, besides the state of the baseline. */
static bool is_interlude_used(void)
{
	return php_output_get_level() > 0 || SG(headers_sent) || zend_llist_count(&SG(sapi_headers).headers) > 0
		|| BG(user_shutdown_function_names) || zend_hash_str_exists(&EG(symbol_table), ZEND_STRL("_SESSION"));
}

/* Before the wait for the next request: an open session would keep its lock during the wait. */
static void close_interlude(void)
{
	if (is_interlude_used()) {
		complete_request();
	}
	restore_baseline();
}

static void end_request(void)
{
	phase = ENDS_REQUEST;
	complete_request();
	if (howdah_forked) {
		/* A handler forked this process. The next request belongs to the parent. */
		_exit(EG(exit_status));
	}
	restore_baseline();
	howdah_kept_memory_note_request();
	howdah_exchange_end();
	howdah_exchange_begin(boot_request, 0);
	howdah_signals_after_request();
	open_interlude();
	howdah_request_done();
}

/* ---- handle_request() ---- */

/* False if an output handler or the session of the boot has failed meanwhile: this is an error of the boot. */
static bool end_boot(void)
{
	close_request();
	howdah_superglobals_forget_session();
	if (is_damaged || EG(exception)) {
		start_output();
		sapi_activate();
		return false;
	}
	howdah_baseline_take();
	time_limit = INI_INT("max_execution_time");
	howdah_superglobals_take();
	howdah_signals_after_boot();
	phase = BETWEEN_REQUESTS;
	return true;
}

/* The script goes on as it began: without a client. */
static void begin_end(void)
{
	phase = ENDS;
	howdah_baseline_end();
}

/* The output, the session and the time limit of the boot end; from now on the output goes to the log. */
bool howdah_worker_script_begin_loop(void)
{
	if (phase != BOOTS) {
		zend_throw_error(NULL, "%s() can be called by the worker script only, before its end",
			get_active_function_name());
		return false;
	}
	if (OG(running)) {
		zend_throw_error(NULL, "%s() cannot be called in an output handler", get_active_function_name());
		return false;
	}
	close_request();
	howdah_superglobals_forget_session();
	EG(timeout_seconds) = 0;
	bool is_ready = !is_damaged && !EG(exception);
	if (is_ready) {
		phase = LOOPS;
	}
	start_output();
	sapi_activate();
	if (is_ready) {
		howdah_modules_start();
	} else if (is_damaged) {
		end_script();
	}
	return is_ready;
}

PHP_FUNCTION(howdah_handle_request)
{
	zend_fcall_info handler;
	zend_fcall_info_cache cache;
	zval result;

	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_FUNC(handler, cache)
	ZEND_PARSE_PARAMETERS_END();

	if (phase == ENDS) {
		RETURN_FALSE;
	}
	if ((phase != BOOTS && phase != BETWEEN_REQUESTS) || howdah_forked) {
		zend_throw_error(NULL, "%s() can be called by the worker script only, outside of a request",
			get_active_function_name());
		RETURN_THROWS();
	}
	if (OG(running)) {
		zend_throw_error(NULL, "%s() cannot be called in an output handler", get_active_function_name());
		RETURN_THROWS();
	}
	if (phase == BOOTS) {
		if (!end_boot()) {
			if (is_damaged) {
				end_script();
			}
			RETURN_THROWS();
		}
	} else {
		howdah_kept_memory_collect();
		close_interlude();
		if (is_damaged) {
			open_interlude();
			end_script();
			RETURN_THROWS();
		}
		howdah_kept_memory_record(howdah_superglobals_release);
	}
	howdah_opcache_report();
	const struct howdah_request *request = howdah_next_request();
	if (!request) {
		open_interlude();
		begin_end();
		RETURN_FALSE;
	}
	if (begin_request(request)) {
		phase = HANDLES_REQUEST;
		/*
		 * PHP leaves this field of an internal function's frame as it was in the memory. When exit() in the handler frees
		 * an abandoned generator with a finally block, PHP 8.4 reads it.
		 */
		EX(opline) = NULL;
		ZVAL_UNDEF(&result);
		handler.retval = &result;
		zend_call_function(&handler, &cache);
		zval_ptr_dtor(&result);
		if (is_damaged) {
			end_script();
			RETURN_THROWS();
		}
		if (EG(exception) && zend_is_graceful_exit(EG(exception))) {
			reject_suspended_handler();
		}
		settle_exception();
	}
	end_request();
	if (is_damaged) {
		end_script();
		RETURN_THROWS();
	}
	RETURN_TRUE;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle_request, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, handler, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	ZEND_NS_NAMED_FE("howdah", handle_request, zif_howdah_handle_request, arginfo_handle_request)
	PHP_FE_END
};

void howdah_worker_script_register(int module_type)
{
	if (is_async) {
		howdah_async_register(module_type);
	} else if (is_configured) {
		zend_register_functions(NULL, functions, NULL, module_type);
		howdah_frankenphp_register(module_type);
		howdah_baseline_watch();
	}
}

/* ---- the life of the script ---- */

/* Runs the worker script until it ends. The caller knows from its own functions whether the script was booted. */
void howdah_php_run_worker_script(const struct howdah_request *boot)
{
	boot_request = boot;
	phase = BOOTS;
	howdah_baseline_begin();
	howdah_modules_find();
	next_error_handler = zend_error_cb;
	zend_error_cb = handle_error;
	howdah_exchange_begin(boot, 0);
	if (php_request_startup() == SUCCESS) {
		zend_first_try {
			howdah_run_script();
			if (phase == HANDLES_REQUEST && !is_damaged) {
				reject_suspended_handler();
			}
		} zend_end_try();
	}
	int in_request = is_in_request();
	if (in_request) {
		/* A fatal error. The shutdown functions of the boot may answer it. */
		howdah_baseline_end();
	} else if (phase == BETWEEN_REQUESTS) {
		/* The script has left its loop by itself, or by an error. */
		begin_end();
	} else if (phase == LOOPS) {
		phase = ENDS;
	}
	php_request_shutdown(NULL);
	if (howdah_forked) {
		_exit(EG(exit_status));
	}
	fflush(stdout);
	howdah_exchange_end();
	if (in_request) {
		howdah_request_done();
	}
}
