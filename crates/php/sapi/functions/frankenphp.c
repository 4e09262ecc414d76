/* FrankenPHP's functions, so that its worker scripts run unchanged. They exist in worker mode only: applications use
 * function_exists() to recognize the mode. */

#include "exchange.h"
#include "functions/frankenphp.h"
#include "functions/both_modes.h"
#include "worker_mode/worker_script.h"
#include "SAPI.h"
#include "zend_smart_str.h"
#include "ext/json/php_json.h"
#include <syslog.h>

/* FrankenPHP's levels of log lines. */
enum { DEBUG = -4, INFO = 0, WARN = 4, ERROR = 8 };

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_handle_request, 0, 1, _IS_BOOL, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish_request, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_log, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, message, IS_STRING, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, level, IS_LONG, 0, "0")
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, context, IS_ARRAY, 0, "[]")
ZEND_END_ARG_INFO()

static PHP_FUNCTION(frankenphp_log)
{
	zend_string *message;
	zend_long level = INFO;
	zval *context = NULL;
	smart_str line = { 0 };

	ZEND_PARSE_PARAMETERS_START(1, 3)
		Z_PARAM_STR(message)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(level)
		Z_PARAM_ARRAY(context)
	ZEND_PARSE_PARAMETERS_END();
	smart_str_append(&line, message);
	if (context && zend_hash_num_elements(Z_ARRVAL_P(context)) > 0) {
		smart_str_appendc(&line, ' ');
		php_json_encode(&line, context, PHP_JSON_UNESCAPED_SLASHES | PHP_JSON_PARTIAL_OUTPUT_ON_ERROR);
	}
	smart_str_0(&line);
	sapi_module.log_message(line.s ? ZSTR_VAL(line.s) : "",
		level >= ERROR ? LOG_ERR : level >= WARN ? LOG_WARNING : level >= INFO ? LOG_INFO : LOG_DEBUG);
	smart_str_free(&line);
}

static const zend_function_entry functions[] = {
	ZEND_NAMED_FE(frankenphp_handle_request, zif_howdah_handle_request, arginfo_handle_request)
	ZEND_NAMED_FE(frankenphp_finish_request, zif_fastcgi_finish_request, arginfo_finish_request)
	ZEND_NAMED_FE(frankenphp_request_headers, zif_getallheaders, arginfo_headers)
	ZEND_NAMED_FE(frankenphp_response_headers, zif_apache_response_headers, arginfo_headers)
	PHP_FE(frankenphp_log, arginfo_log)
	PHP_FE_END
};

void howdah_frankenphp_register(int module_type)
{
	zend_register_functions(NULL, functions, NULL, module_type);
	REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_DEBUG", DEBUG, CONST_CS | CONST_PERSISTENT);
	REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_INFO", INFO, CONST_CS | CONST_PERSISTENT);
	REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_WARN", WARN, CONST_CS | CONST_PERSISTENT);
	REGISTER_MAIN_LONG_CONSTANT("FRANKENPHP_LOG_LEVEL_ERROR", ERROR, CONST_CS | CONST_PERSISTENT);
}
