/* PHP functions for scripts in both modes. */
#ifndef HOWDAH_BOTH_MODES_H
#define HOWDAH_BOTH_MODES_H

#include "php.h"

extern const zend_function_entry howdah_functions[];

PHP_FUNCTION(fastcgi_finish_request);
PHP_FUNCTION(getallheaders);
PHP_FUNCTION(apache_response_headers);

#endif
