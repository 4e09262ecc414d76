/* The numbers of opcache, for GET /metrics: opcache_get_status() without its list of scripts.
 *
 * Rust decides when they are due: once a second in one worker of a generation. A php.ini that forbids the function, by
 * disable_functions or opcache.restrict_api, leaves the numbers out. */

#include "opcache.h"
#include "howdah_sapi.h"
#include "php.h"
#include "zend_ini.h"

static zval *member(zval *of, const char *name)
{
	return of && Z_TYPE_P(of) == IS_ARRAY ? zend_hash_str_find(Z_ARRVAL_P(of), name, strlen(name)) : NULL;
}

static uint64_t number(zval *of, const char *name)
{
	zval *found = member(of, name);

	return found && Z_TYPE_P(found) == IS_LONG && Z_LVAL_P(found) > 0 ? (uint64_t) Z_LVAL_P(found) : 0;
}

void howdah_opcache_report(void)
{
	const char *restricted_to;
	zend_function *function;
	zval argument, status;

	if (howdah_forked || EG(exception) || !howdah_opcache_is_due()) {
		return;
	}
	function = zend_hash_str_find_ptr(CG(function_table), "opcache_get_status", sizeof("opcache_get_status") - 1);
	restricted_to = zend_ini_string("opcache.restrict_api", sizeof("opcache.restrict_api") - 1, 0);
	if (!function || function->type != ZEND_INTERNAL_FUNCTION || (restricted_to && *restricted_to)) {
		return;
	}
	ZVAL_FALSE(&argument);
	ZVAL_UNDEF(&status);
	zend_call_known_function(function, NULL, NULL, &status, 1, &argument, NULL);
	if (Z_TYPE(status) == IS_ARRAY) {
		zval *memory = member(&status, "memory_usage"), *statistics = member(&status, "opcache_statistics");
		const struct howdah_opcache numbers = {
			.used = number(memory, "used_memory"),
			.free = number(memory, "free_memory"),
			.wasted = number(memory, "wasted_memory"),
			.scripts = number(statistics, "num_cached_scripts"),
			.hits = number(statistics, "hits"),
			.misses = number(statistics, "misses"),
			.restarts = number(statistics, "oom_restarts") + number(statistics, "hash_restarts")
				+ number(statistics, "manual_restarts"),
		};

		howdah_opcache_numbers(&numbers);
	}
	zval_ptr_dtor(&status);
}
