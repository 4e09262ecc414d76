/* Replaces a function of PHP by one of howdah's that calls it. */
#ifndef HOWDAH_WRAP_H
#define HOWDAH_WRAP_H

#include "php.h"

/* The former handler goes to `original`; without such a function nothing happens. A closure of the function has the new
 * handler, too. Call it when all functions are registered, and nothing has been preloaded. */
static inline void howdah_wrap(const char *name, zif_handler wrapper, zif_handler *original)
{
	zend_internal_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));

	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		*original = function->handler;
		function->handler = wrapper;
	}
}

#endif
