/* Shutdown and tick functions. The shutdown functions of the boot wait for the end of the script. */
#include "worker_mode/baseline/parts.h"
#include "php.h"
#include "php_ticks.h"
#include "ext/standard/basic_functions.h"

static HashTable *boot_shutdown_functions;
static size_t boot_tick_functions;

void howdah_take_functions(void)
{
	boot_shutdown_functions = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
	boot_tick_functions = BG(user_tick_functions) ? zend_llist_count(BG(user_tick_functions)) : 0;
}

void howdah_restore_functions(void)
{
	while (BG(user_tick_functions) && zend_llist_count(BG(user_tick_functions)) > boot_tick_functions) {
		zend_llist_remove_tail(BG(user_tick_functions));
	}
}

void howdah_return_functions(void)
{
	php_shutdown_function_entry *entry;

	if (!BG(user_shutdown_function_names)) {
		BG(user_shutdown_function_names) = boot_shutdown_functions;
	} else if (boot_shutdown_functions) {
		ZEND_HASH_FOREACH_PTR(boot_shutdown_functions, entry) {
			append_user_shutdown_function(entry);
		} ZEND_HASH_FOREACH_END();
	}
	boot_shutdown_functions = NULL;
}
