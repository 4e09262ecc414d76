/* PHP functions for scripts in both modes. */
#ifndef HOWDAH_BOTH_MODES_H
#define HOWDAH_BOTH_MODES_H

#include "php.h"

struct howdah_request;

extern const zend_function_entry howdah_functions[];

/* Adds the headers of a request to an array, by name. */
void howdah_add_request_headers(zval *array, const struct howdah_request *request);

PHP_FUNCTION(fastcgi_finish_request);
PHP_FUNCTION(getallheaders);
PHP_FUNCTION(apache_response_headers);

#endif
