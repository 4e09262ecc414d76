/* howdah's SAPI.
 *
 * PHP is started once, in the prototype. Each worker is a fork of it. In classic mode it runs one request after another
 * through howdah_php_run(); in worker mode it runs the worker script (worker_mode/). PHP reads and writes through the
 * functions in howdah_sapi.h under "C calls Rust". All of PHP's try blocks are in C. Compiles for PHP 8.1 to 8.5, NTS. */

#include "exchange.h"
#include "functions/both_modes.h"
#include "howdah_sapi.h"
#include "opcache.h"
#include "samples/sampler.h"
#include "variables.h"
#include "worker_mode/worker_script.h"
#include "php.h"
#include "php_main.h"
#include "php_output.h"
#include "php_variables.h"
#include "SAPI.h"
#include "zend_exceptions.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/info.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef ZTS
# error "howdah runs the distribution's NTS build of PHP: this php-config belongs to a ZTS build"
#endif

/* NULL without a request: while scripts are preloaded, and while the prototype asks PHP something (prototype.c). While a
 * worker script boots, and between two of its requests, it is the request of the boot, which has no client. */
static const struct howdah_request *request;
/* The response is complete, or there is no client. */
static int response_finished;
/* The rest of the request's body will not arrive, and the script has been ended for that. */
static int body_is_lost;
/* The script is over: the rest of the body is read only to drop it. */
static int modules_are_down;
/* max_input_time, while PHP's variable is overwritten: see ignore_input_time(). */
static zend_long max_input_time;
static int input_time_is_ignored;
static const char *server_software;

/* A process that a script forked has the same request in its memory, but the exchange belongs to its parent: the child's
 * output is dropped. */
int howdah_exchange_is_open(void)
{
	return request && !response_finished && !howdah_forked;
}

const struct howdah_request *howdah_exchange_request(void)
{
	return request;
}

int howdah_exchange_lost_its_body(void)
{
	return body_is_lost;
}

void howdah_exchange_drops_body(void)
{
	modules_are_down = 1;
}

/* ---- the request ---- */

static char *sapi_howdah_getenv(const char *name, size_t len)
{
	return (char *) howdah_variables_find(name, len);
}

static size_t sapi_howdah_read_post(char *buffer, size_t len)
{
	size_t total = 0;

	while (howdah_exchange_is_open() && total < len) {
		long got = howdah_read_body(buffer + total, len - total);
		if (got < 0 && !body_is_lost && !modules_are_down) {
			/* A script must not use a part of the body as the whole: it ends here, like the script of a client that is gone. */
			body_is_lost = 1;
			PG(connection_status) = PHP_CONNECTION_ABORTED;
			if (!howdah_worker_script_unwinds()) {
				zend_bailout();
			}
		}
		if (got <= 0) {
			break;
		}
		total += (size_t) got;
	}
	return total;
}

static char *sapi_howdah_read_cookies(void)
{
	return request ? (char *) request->cookie : NULL;
}

/* ---- the response ---- */

/* The client is gone. This ends the script, unless it ignores that. */
static void handle_aborted_connection(void)
{
	if (PG(ignore_user_abort) || !howdah_worker_script_unwinds()) {
		php_handle_aborted_connection();
		return;
	}
	PG(connection_status) = PHP_CONNECTION_ABORTED;
	php_output_set_status(PHP_OUTPUT_DISABLED);
}

static size_t sapi_howdah_ub_write(const char *bytes, size_t len)
{
	if (howdah_worker_script_has_no_client()) {
		return howdah_worker_script_write(bytes, len);
	}
	/* After fastcgi_finish_request() output is dropped, and the script continues. */
	if (howdah_exchange_is_open() && !howdah_write(bytes, len)) {
		handle_aborted_connection();
		return 0;
	}
	return len;
}

static void sapi_howdah_flush(void *server_context)
{
	(void) server_context;
	if (!howdah_exchange_is_open()) {
		return;
	}
	howdah_flush();
	if (howdah_client_is_gone()) {
		handle_aborted_connection();
	}
}

/* The code of "Status: 404 Not Found" or "HTTP/1.1 404 Not Found", with the reason phrase after it. */
static int parse_status(const char *text, const char **reason)
{
	int status = (int) ZEND_STRTOL(text, NULL, 10);
	const char *space = strchr(text, ' ');

	*reason = space ? space + 1 : "";
	return status >= 200 && status <= 999 ? status : 0;
}

void howdah_exchange_send_head(int status, const char *reason, sapi_headers_struct *headers)
{
	zend_llist_position position;
	sapi_header_struct *header;

	howdah_head_begin(status, reason, strlen(reason));
	for (header = zend_llist_get_first_ex(&headers->headers, &position); header;
		header = zend_llist_get_next_ex(&headers->headers, &position)) {
		if (header->header_len > 7 && strncasecmp(header->header, "Status:", 7) == 0) {
			continue;
		}
		howdah_head_line(header->header, header->header_len);
	}
	howdah_head_end();
}

static int sapi_howdah_send_headers(sapi_headers_struct *headers)
{
	zend_llist_position position;
	sapi_header_struct *header;
	const char *reason = "";
	int status = headers->http_response_code ? headers->http_response_code : 200;

	if (!howdah_exchange_is_open()) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	if (headers->http_status_line) {
		const char *code = strchr(headers->http_status_line, ' ');
		int parsed = code ? parse_status(code + 1, &reason) : 0;
		status = parsed ? parsed : status;
	} else {
		for (header = zend_llist_get_first_ex(&headers->headers, &position); header;
			header = zend_llist_get_next_ex(&headers->headers, &position)) {
			if (header->header_len > 7 && strncasecmp(header->header, "Status:", 7) == 0) {
				const char *code = header->header + 7;
				int parsed;
				while (*code == ' ') {
					code++;
				}
				parsed = parse_status(code, &reason);
				status = parsed ? parsed : status;
			}
		}
	}
	howdah_exchange_send_head(status, reason, headers);
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

void howdah_exchange_finish(void)
{
	if (howdah_exchange_is_open()) {
		response_finished = 1;
		howdah_finish();
	}
}

/* PHP sets its timer for max_input_time, and again for max_execution_time when the script starts. A request without a body
 * has no input to spend time on: -1 makes PHP set its timer only for the value of max_execution_time in
 * EG(timeout_seconds), where a request that ran no script may have left the other one. */
static void ignore_input_time(void)
{
	if (request->content_length == 0) {
		max_input_time = PG(max_input_time);
		input_time_is_ignored = 1;
		PG(max_input_time) = -1;
		EG(timeout_seconds) = INI_INT("max_execution_time");
	}
}

static void restore_input_time(void)
{
	if (input_time_is_ignored) {
		input_time_is_ignored = 0;
		PG(max_input_time) = max_input_time;
	}
}

/* Applies the settings of php.ini's sections and of .user.ini for this request. A worker script has them from its boot. */
static int sapi_howdah_activate_settings(void)
{
	if (request && !howdah_worker_script_is_booted()) {
		if (php_ini_has_per_host_config()) {
			const char *name = howdah_variables_find(ZEND_STRL("SERVER_NAME"));
			if (name) {
				char *lower = estrdup(name);
				zend_str_tolower(lower, strlen(lower));
				php_ini_activate_per_host_config(lower, strlen(lower));
				efree(lower);
			}
		}
		if (php_ini_has_per_dir_config()) {
			size_t len = strlen(request->script_filename);
			char *path = estrndup(request->script_filename, len);
			len = zend_dirname(path, len);
			path[len] = '/';
			php_ini_activate_per_dir_config(path, len + 1);
			efree(path);
		}
		howdah_activate_user_ini(request->script_filename, request->document_root);
		if (SG(server_context)) {
			ignore_input_time();
		}
	}
	return SUCCESS;
}

/* Sessions are written and destructors have run: the response is complete. */
static int sapi_howdah_deactivate(void)
{
	howdah_exchange_finish();
	howdah_sampler_before_cleaning();
	return SUCCESS;
}

static void sapi_howdah_log_message(const char *message, int syslog_type)
{
	howdah_log(message, syslog_type, request ? request->method : NULL, request ? request->uri : NULL);
}

static int sapi_howdah_startup(sapi_module_struct *module);

static sapi_module_struct howdah_sapi = {
	/* opcache and frameworks know this name. It implies fastcgi_finish_request() and CGI variables, which exist here. */
	.name = "fpm-fcgi",
	.pretty_name = "howdah",
	.startup = sapi_howdah_startup,
	.shutdown = php_module_shutdown_wrapper,
#if PHP_VERSION_ID >= 80500
	/* Before the body is read, so that post_max_size applies. FPM does the same, and is also too late up to PHP 8.4. */
	.pre_request_init = sapi_howdah_activate_settings,
#else
	.activate = sapi_howdah_activate_settings,
#endif
	.deactivate = sapi_howdah_deactivate,
	.ub_write = sapi_howdah_ub_write,
	.flush = sapi_howdah_flush,
	.getenv = sapi_howdah_getenv,
	.sapi_error = php_error,
	.send_headers = sapi_howdah_send_headers,
	.read_post = sapi_howdah_read_post,
	.read_cookies = sapi_howdah_read_cookies,
	.register_server_variables = howdah_variables_register,
	.log_message = sapi_howdah_log_message,
	.ini_defaults = howdah_lock_folder_default,
	.php_ini_ignore_cwd = 1,
};

/* ---- the module ---- */

static const char *mode_name(void)
{
	if (howdah_worker_script_is_async()) {
		return "async";
	}
	return howdah_worker_script_is_configured() ? "worker" : "classic";
}

static PHP_MINFO_FUNCTION(howdah)
{
	(void) zend_module;
	php_info_print_table_start();
	php_info_print_table_row(2, "howdah", server_software);
	php_info_print_table_row(2, "Mode", mode_name());
	php_info_print_table_end();
}

/* All functions are registered, and nothing has been preloaded. */
static PHP_MINIT_FUNCTION(howdah)
{
	(void) module_number;
	howdah_worker_script_register(type);
	howdah_forks_wrap();
	howdah_signals_wrap();
	howdah_lock_folder_check();
	howdah_variables_watch();
	return SUCCESS;
}

static PHP_RSHUTDOWN_FUNCTION(howdah)
{
	(void) type;
	(void) module_number;
	modules_are_down = 1;
	if (howdah_worker_script_is_async() && !howdah_forked) {
		/* Shutdown functions and destructors have run: no code of the script answers a request any more. */
		howdah_async_close();
	}
	return SUCCESS;
}

static zend_module_entry howdah_module = {
	STANDARD_MODULE_HEADER, "howdah", howdah_functions, PHP_MINIT(howdah), NULL, NULL, PHP_RSHUTDOWN(howdah),
	PHP_MINFO(howdah), "0.1.0", STANDARD_MODULE_PROPERTIES
};

/* ---- the life of PHP in this process ---- */

static int sapi_howdah_startup(sapi_module_struct *module)
{
#if PHP_VERSION_ID < 80200
	return php_module_startup(module, &howdah_module, 1);
#else
	return php_module_startup(module, &howdah_module);
#endif
}

/* 0 when PHP can't be started; PHP has written the reason to stderr. */
int howdah_php_startup(const char *ini_file, const char *ini_entries, const char *software)
{
	/* The prototype may itself be a fork of a process that has exited: a pid namespace requires that. */
	howdah_forked = 0;
	server_software = software;
	howdah_sapi.php_ini_path_override = (char *) ini_file;
	signal(SIGPIPE, SIG_IGN);
	/* Rust's handlers would ignore the first SIGSEGV that another process sends. A crash of PHP must be a crash. */
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	zend_signal_startup();
	sapi_startup(&howdah_sapi);
	/* sapi_startup() clears it. */
	howdah_sapi.ini_entries = (char *) ini_entries;
	/* See howdah_run_script(). */
	SG(options) |= SAPI_OPTION_NO_CHDIR;
	int started = howdah_sapi.startup(&howdah_sapi) == SUCCESS;
	if (howdah_forked) {
		/* A preload script forked this process. There is only one prototype. */
		_exit(EG(exit_status));
	}
	if (!started) {
		return 0;
	}
	howdah_sampler_install();
	return 1;
}

/* Enters the script's folder; whether the script is a file there. */
static int enter_folder(const char *script_filename)
{
	const char *last = strrchr(script_filename, '/');
	struct stat status;

	/* The short path is a cheaper lookup, and the folder is entered in any case. */
	return VCWD_CHDIR_FILE(script_filename) == 0 && stat(last ? last + 1 : script_filename, &status) == 0
		&& S_ISREG(status.st_mode);
}

/* The script runs in its own folder; shutdown functions and destructors run in the worker's folder, as under FPM.
 * php_execute_script() would do the same with the name of the worker's folder, which it asks for each time. */
void howdah_run_script(void)
{
	static int folder_of_worker = -1;
	zend_file_handle script;

	if (folder_of_worker < 0) {
		folder_of_worker = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	int is_file = enter_folder(request->script_filename);
	if (is_file) {
		zend_stream_init_filename(&script, request->script_filename);
		script.primary_script = true;
		php_execute_script(&script);
		zend_destroy_file_handle(&script);
	}
	if (fchdir(folder_of_worker) != 0) {
		/* A script has closed this worker's descriptors. */
		php_ignore_value(chdir("/"));
	}
	if (!is_file) {
		/* It was deleted after the router had found it. */
		SG(sapi_headers).http_response_code = 404;
		PUTS("File not found.\n");
	}
}

void howdah_exchange_begin(const struct howdah_request *new_request, int has_client)
{
	request = new_request;
	response_finished = !has_client;
	body_is_lost = 0;
	modules_are_down = 0;
	howdah_variables_forget();
	SG(server_context) = has_client ? (void *) new_request : NULL;
	SG(sapi_headers).http_response_code = 200;
	SG(request_info).request_method = new_request->method;
	SG(request_info).query_string = (char *) new_request->query_string;
	SG(request_info).request_uri = (char *) new_request->script_name;
	SG(request_info).path_translated = (char *) new_request->script_filename;
	SG(request_info).content_type = new_request->content_type;
	SG(request_info).content_length = new_request->content_length;
	SG(request_info).cookie_data = NULL;
	php_handle_auth_data(new_request->authorization);
	if (has_client) {
		howdah_sampler_begin(new_request);
	}
}

void howdah_exchange_end(void)
{
	howdah_exchange_finish();
	howdah_sampler_finish();
	SG(server_context) = NULL;
	request = NULL;
}

void howdah_php_run(const struct howdah_request *new_request)
{
	howdah_exchange_begin(new_request, 1);
	howdah_signals_before_request();

	if (php_request_startup() == SUCCESS) {
		zend_first_try {
			howdah_opcache_report();
			howdah_run_script();
		} zend_end_try();
	}
	restore_input_time();
	php_request_shutdown(NULL);
	if (howdah_forked) {
		/* A script forked this process, and the script is over. The next request belongs to the parent. */
		_exit(EG(exit_status));
	}
	howdah_exchange_end();
	howdah_signals_after_request();
}

void howdah_php_shutdown(void)
{
	php_module_shutdown();
	sapi_shutdown();
}
