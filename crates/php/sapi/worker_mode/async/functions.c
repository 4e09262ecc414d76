/* Async mode: the functions with which an event loop takes requests.
 *
 * For PHP's engine the life of the script is one request without a client, as in worker mode. HTTP requests are objects: no
 * superglobal, output or time limit belongs to one. The boot ends with the first call of stream() or accept(). */

#include "worker_mode/async/async.h"
#include "howdah_sapi.h"
#include "opcache.h"
#include "worker_mode/kept_memory.h"
#include "worker_mode/worker_script.h"
#include <fcntl.h>

/* The descriptor that is readable when accept() has something to do; -1 before the end of the boot. */
static int descriptor = -1;
/* The stream over a copy of it. The script may close it. */
static zend_resource *stream;

static bool begin(void)
{
	if (howdah_forked) {
		zend_throw_error(NULL, "%s() cannot be called in a process that the worker has forked", get_active_function_name());
		return false;
	}
	if (descriptor < 0 && howdah_worker_script_begin_loop()) {
		descriptor = howdah_async_begin();
	}
	return descriptor >= 0;
}

static PHP_FUNCTION(howdah_async_stream)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!begin()) {
		RETURN_THROWS();
	}
	if (stream && stream->type < 0) {
		zend_list_delete(stream);
		stream = NULL;
	}
	if (!stream) {
		int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
		php_stream *opened = copy < 0 ? NULL : php_stream_fopen_from_fd(copy, "r", NULL);
		if (!opened) {
			zend_throw_error(NULL, "%s() has no descriptor for the stream", get_active_function_name());
			RETURN_THROWS();
		}
		opened->flags |= PHP_STREAM_FLAG_NO_SEEK | PHP_STREAM_FLAG_NO_BUFFER;
		stream = opened->res;
	}
	GC_ADDREF(stream);
	RETURN_RES(stream);
}

static PHP_FUNCTION(howdah_async_accept)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!begin()) {
		RETURN_THROWS();
	}
	if (howdah_async_is_idle()) {
		/* Code of the script may run: destructors. */
		howdah_kept_memory_collect();
		howdah_kept_memory_record(NULL);
	}
	howdah_opcache_report();
	int64_t number = howdah_async_accept();

	if (number < 0) {
		RETURN_NULL();
	}
	howdah_kept_memory_note_held(howdah_async_request((uint32_t) number));
	howdah_async_make_request(return_value, (uint32_t) number);
}

static PHP_FUNCTION(howdah_async_is_running)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!begin()) {
		RETURN_THROWS();
	}
	RETURN_BOOL(howdah_async_takes_requests());
}

ZEND_BEGIN_ARG_INFO_EX(arginfo_stream, 0, 0, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_OBJ_INFO_EX(arginfo_accept, 0, 0, howdah\\Async\\Request, 1)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_is_running, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	ZEND_NS_NAMED_FE("howdah\\Async", stream, zif_howdah_async_stream, arginfo_stream)
	ZEND_NS_NAMED_FE("howdah\\Async", accept, zif_howdah_async_accept, arginfo_accept)
	ZEND_NS_NAMED_FE("howdah\\Async", is_running, zif_howdah_async_is_running, arginfo_is_running)
	PHP_FE_END
};

void howdah_async_register(int module_type)
{
	zend_register_functions(NULL, functions, NULL, module_type);
	howdah_async_register_request();
}
