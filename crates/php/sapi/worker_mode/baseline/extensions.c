/* The state of extensions that a function of theirs reads without an argument, and sets with one: the encodings of mbstring,
 * libxml's errors, and whether pcntl's handlers run at once.
 *
 * The functions are wrapped to note that they were called, so that other requests cost nothing. */
#include "worker_mode/baseline/parts.h"
#include "process/wrap.h"
#include "php.h"

static struct {
	const char *const function;
	zif_handler of_php;
	bool is_called;
	/* The value at the end of the boot. */
	zval kept;
} states[] = {
	{ .function = "mb_internal_encoding" },
	{ .function = "mb_substitute_character" },
	{ .function = "mb_http_output" },
	{ .function = "mb_detect_order" },
	{ .function = "mb_regex_encoding" },
	{ .function = "libxml_use_internal_errors" },
	{ .function = "pcntl_async_signals" },
};
#define STATES (sizeof(states) / sizeof(states[0]))

static ZEND_NAMED_FUNCTION(note_call)
{
	const zend_string *name = execute_data->func->common.function_name;

	for (size_t i = 0; i < STATES; i++) {
		if (zend_string_equals_cstr(name, states[i].function, strlen(states[i].function))) {
			states[i].is_called = true;
			states[i].of_php(INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

void howdah_watch_extensions(void)
{
	for (size_t i = 0; i < STATES; i++) {
		howdah_wrap(states[i].function, note_call, &states[i].of_php);
	}
}

static void call(const char *name, uint32_t count, zval *arguments, zval *result)
{
	zval function;

	ZVAL_STRING(&function, name);
	ZVAL_UNDEF(result);
	call_user_function(NULL, NULL, &function, result, count, arguments);
	zval_ptr_dtor(&function);
}

void howdah_take_extensions(void)
{
	for (size_t i = 0; i < STATES; i++) {
		if (states[i].of_php) {
			call(states[i].function, 0, NULL, &states[i].kept);
			states[i].is_called = false;
		}
	}
}

void howdah_restore_extensions(void)
{
	zval result;

	for (size_t i = 0; i < STATES; i++) {
		if (states[i].is_called) {
			call(states[i].function, 1, &states[i].kept, &result);
			zval_ptr_dtor(&result);
			states[i].is_called = false;
		}
	}
}
