/* PHP functions for scripts in both modes: the end of the response, and headers. */

#include "exchange.h"
#include "functions/both_modes.h"
#include "php_output.h"
#include "SAPI.h"
#include "ext/standard/head.h"

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_finish, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_headers_send, 0, 0, IS_LONG, 0)
	ZEND_ARG_TYPE_INFO_WITH_DEFAULT_VALUE(0, status, IS_LONG, 0, "200")
ZEND_END_ARG_INFO()

PHP_FUNCTION(fastcgi_finish_request)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!howdah_exchange_is_open()) {
		RETURN_FALSE;
	}
	php_output_end_all();
	php_header();
	howdah_exchange_finish();
	RETURN_TRUE;
}

/* "HTTP_USER_AGENT" is the header "User-Agent". */
static void add_request_header(zval *array, const char *name, size_t len, const struct howdah_variable *variable)
{
	char *header = estrndup(name, len);
	int upper = 1;

	zend_str_tolower(header, len);
	for (size_t i = 0; i < len; i++) {
		if (header[i] == '_') {
			header[i] = '-';
			upper = 1;
		} else if (upper) {
			header[i] = name[i];
			upper = 0;
		}
	}
	add_assoc_stringl_ex(array, header, len, (char *) variable->value, variable->value_len);
	efree(header);
}

void howdah_add_request_headers(zval *array, const struct howdah_request *request)
{
	for (size_t i = 0; i < request->count; i++) {
		const struct howdah_variable *variable = &request->variables[i];
		if (variable->name_len > 5 && memcmp(variable->name, "HTTP_", 5) == 0) {
			add_request_header(array, variable->name + 5, variable->name_len - 5, variable);
		} else if ((variable->name_len == 12 && memcmp(variable->name, "CONTENT_TYPE", 12) == 0)
			|| (variable->name_len == 14 && memcmp(variable->name, "CONTENT_LENGTH", 14) == 0)) {
			add_request_header(array, variable->name, variable->name_len, variable);
		}
	}
}

PHP_FUNCTION(getallheaders)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	if (howdah_exchange_request()) {
		howdah_add_request_headers(return_value, howdah_exchange_request());
	}
}

PHP_FUNCTION(apache_response_headers)
{
	zend_llist_position position;
	sapi_header_struct *header;

	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	for (header = zend_llist_get_first_ex(&SG(sapi_headers).headers, &position); header;
		header = zend_llist_get_next_ex(&SG(sapi_headers).headers, &position)) {
		const char *colon = memchr(header->header, ':', header->header_len);
		if (colon) {
			const char *value = colon + 1;
			while (*value == ' ') {
				value++;
			}
			add_assoc_string_ex(return_value, header->header, (size_t) (colon - header->header), (char *) value);
		}
	}
}

/* FrankenPHP's name, which Symfony looks for. The headers of an interim response (1xx) remain for the response. */
PHP_FUNCTION(headers_send)
{
	zend_long status = 200;

	ZEND_PARSE_PARAMETERS_START(0, 1)
		Z_PARAM_OPTIONAL
		Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();
	if (status < 100 || status > 999) {
		zend_argument_value_error(1, "must be between 100 and 999");
		RETURN_THROWS();
	}
	if (status >= 200) {
		SG(sapi_headers).http_response_code = (int) status;
		RETURN_LONG(sapi_send_headers());
	}
	if (SG(headers_sent) || SG(request_info).no_headers || !howdah_exchange_is_open()) {
		RETURN_LONG(SAPI_HEADER_SEND_FAILED);
	}
	howdah_exchange_send_head((int) status | HOWDAH_INTERIM, "", &SG(sapi_headers));
	howdah_flush();
	RETURN_LONG(SUCCESS);
}

const zend_function_entry howdah_functions[] = {
	PHP_FE(fastcgi_finish_request, arginfo_finish)
	PHP_FE(getallheaders, arginfo_headers)
	PHP_FALIAS(apache_request_headers, getallheaders, arginfo_headers)
	PHP_FE(apache_response_headers, arginfo_headers)
	PHP_FE(headers_send, arginfo_headers_send)
	PHP_FE_END
};
