/* Questions of the prototype to PHP, before there are workers: its version and folders, its settings, whether opcache works, and
 * whether a file can be compiled. The last two need a request, which has no client. */

#include "howdah_sapi.h"
#include "php.h"
#include "build-defs.h"
#include "php_ini.h"
#include "php_main.h"
#include "SAPI.h"
#include "zend_ini_scanner.h"
#include "ext/standard/basic_functions.h"

const char *howdah_php_version(void)
{
	return PHP_VERSION;
}

/* The folders that were compiled into this PHP: see build-defs.h. */
const char *howdah_php_extension_dir(void)
{
	return PHP_EXTENSION_DIR;
}

const char *howdah_php_ini_dir(void)
{
	return PHP_CONFIG_FILE_PATH;
}

static void count_setting(zval *name, zval *value, zval *index, int kind, void *count)
{
	(void) index;
	/* A key of digits counts, too; a name without a value does not. */
	if (kind == ZEND_INI_PARSER_ENTRY && name && value) {
		++*(int *) count;
	}
}

/* The number of settings that PHP reads from this text; -1 after a syntax error, which PHP has written to stderr. PHP's
 * own start ignores everything after such an error. */
int howdah_php_count_settings(const char *ini_entries)
{
	char *text = strdup(ini_entries);
	int count = 0;
	int result = text ? zend_parse_ini_string(text, 1, ZEND_INI_SCANNER_NORMAL, count_setting, &count) : FAILURE;

	free(text);
	return result == SUCCESS ? count : -1;
}

/* From now on scripts can't change this setting. */
void howdah_php_lock_setting(const char *name)
{
	zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), name, strlen(name));

	if (entry) {
		entry->modifiable = ZEND_INI_SYSTEM;
	}
}

/* Ends a request that has no client, so no response is sent. */
static void end_request_without_client(void)
{
	SG(headers_sent) = 1;
	SG(request_info).no_headers = 1;
	php_request_shutdown(NULL);
}

/* Whether opcache really caches the scripts of a request. */
int howdah_php_opcache_is_on(void)
{
	zval *status, arguments[1];
	volatile int on = 0;
	zval name, result;

	if (!zend_hash_str_exists(CG(function_table), "opcache_get_status", sizeof("opcache_get_status") - 1)) {
		return 0;
	}
	if (php_request_startup() == FAILURE) {
		return 0;
	}
	ZVAL_STRING(&name, "opcache_get_status");
	ZVAL_FALSE(&arguments[0]);
	ZVAL_UNDEF(&result);
	zend_try {
		if (call_user_function(NULL, NULL, &name, &result, 1, arguments) == SUCCESS && Z_TYPE(result) == IS_ARRAY) {
			status = zend_hash_str_find(Z_ARRVAL(result), "opcache_enabled", sizeof("opcache_enabled") - 1);
			on = status && zend_is_true(status);
		}
	} zend_end_try();
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&name);
	end_request_without_client();
	return on;
}

/* Visits the name of each setting that PHP and its extensions have. */
void howdah_php_each_setting(void (*visit)(void *context, const char *name, size_t len), void *context)
{
	zend_string *name;

	ZEND_HASH_FOREACH_STR_KEY(EG(ini_directives), name) {
		visit(context, ZSTR_VAL(name), ZSTR_LEN(name));
	} ZEND_HASH_FOREACH_END();
}

/* Whether PHP can compile the file. If not, `reason` gets the error, which PHP has logged, too. */
int howdah_php_compiles(const char *path, char *reason, size_t room)
{
	zend_file_handle file;
	bool displays_errors = PG(display_errors);
	int compiles;

	if (php_request_startup() == FAILURE) {
		return 1;
	}
	PG(display_errors) = 0;
	zend_stream_init_filename(&file, path);
	compiles = php_lint_script(&file) == SUCCESS;
	zend_destroy_file_handle(&file);
	if (!compiles && PG(last_error_message)) {
		snprintf(reason, room, "%s on line %d", ZSTR_VAL(PG(last_error_message)), PG(last_error_lineno));
	}
	PG(display_errors) = displays_errors;
	end_request_without_client();
	return compiles;
}
