/* Stream wrappers and the default stream context. */
#include "worker_mode/baseline/parts.h"
#include "php.h"
#include "ext/standard/file.h"

/* The wrappers by their protocols; empty if the boot has changed none. */
static HashTable boot_wrappers;
static php_stream_context *boot_context;
static zval boot_context_options;

static HashTable *wrappers_of_boot(void)
{
	return zend_hash_num_elements(&boot_wrappers) > 0 ? &boot_wrappers : php_stream_get_url_stream_wrappers_hash_global();
}

void howdah_take_streams(void)
{
	zend_string *protocol;
	void *wrapper;

	zend_hash_init(&boot_wrappers, 0, NULL, NULL, 0);
	if (FG(stream_wrappers)) {
		ZEND_HASH_FOREACH_STR_KEY_PTR(FG(stream_wrappers), protocol, wrapper) {
			zend_hash_add_ptr(&boot_wrappers, protocol, wrapper);
		} ZEND_HASH_FOREACH_END();
	}
	boot_context = FG(default_context);
	if (boot_context) {
		ZVAL_COPY(&boot_context_options, &boot_context->options);
	}
}

/* Like PHP's function of this name, which also releases the class's name. */
static void unregister_wrapper(zend_string *protocol)
{
	zval function, argument, result;

	ZVAL_STRING(&function, "stream_wrapper_unregister");
	ZVAL_STR_COPY(&argument, protocol);
	ZVAL_UNDEF(&result);
	call_user_function(NULL, NULL, &function, &result, 1, &argument);
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&argument);
	zval_ptr_dtor(&function);
}

int howdah_restore_wrappers(void)
{
	zend_string *protocol;
	php_stream_wrapper *wrapper;

	if (!FG(stream_wrappers)) {
		return 1;
	}
	HashTable *current = zend_array_dup(FG(stream_wrappers));
	ZEND_HASH_FOREACH_STR_KEY_PTR(current, protocol, wrapper) {
		if (zend_hash_find_ptr(wrappers_of_boot(), protocol) != wrapper) {
			unregister_wrapper(protocol);
		}
	} ZEND_HASH_FOREACH_END();
	zend_array_destroy(current);
	ZEND_HASH_FOREACH_STR_KEY_PTR(wrappers_of_boot(), protocol, wrapper) {
		if (!zend_hash_exists(FG(stream_wrappers), protocol)) {
			if (wrapper != zend_hash_find_ptr(php_stream_get_url_stream_wrappers_hash_global(), protocol)) {
				/* PHP has released a wrapper of the boot. */
				return 0;
			}
			php_register_url_stream_wrapper_volatile(protocol, wrapper);
		}
	} ZEND_HASH_FOREACH_END();
	return 1;
}

void howdah_restore_context(void)
{
	php_stream_context *context = FG(default_context);

	if (context != boot_context) {
		FG(default_context) = boot_context;
		if (context) {
			zend_list_delete(context->res);
		}
	}
	if (boot_context && Z_COUNTED(boot_context->options) != Z_COUNTED(boot_context_options)) {
		zval_ptr_dtor(&boot_context->options);
		ZVAL_COPY(&boot_context->options, &boot_context_options);
	}
}
