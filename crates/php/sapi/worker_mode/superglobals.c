/* The superglobals of each request of a worker script.
 *
 * PHP fills them once. Here the functions that fill them are called again for each request. $_SERVER has the entries that
 * the boot left there, and then those of the request. $_ENV is as the boot left it.
 *
 * With auto_globals_jit PHP fills $_SERVER, $_ENV and $_REQUEST when it compiles code that uses them. Until then such a
 * superglobal is armed, and needs nothing; once it was filled, it must be filled again for each request. */

#include "worker_mode/superglobals.h"
#include "variables.h"
#include "php_globals.h"
#include "php_variables.h"
#include "SAPI.h"

/* More than most requests have. */
#define VARIABLES 40

static zval boot_server, boot_environment;

/* A copy of a superglobal, if it was filled. */
static void take(zval *copy, const char *name, size_t len)
{
	zval *array = zend_hash_str_find(&EG(symbol_table), name, len);

	ZVAL_UNDEF(copy);
	if (array) {
		ZVAL_DEREF(array);
	}
	if (array && Z_TYPE_P(array) == IS_ARRAY) {
		ZVAL_ARR(copy, zend_array_dup(Z_ARRVAL_P(array)));
	}
}

void howdah_superglobals_take(void)
{
	take(&boot_server, ZEND_STRL("_SERVER"));
	if (Z_TYPE(boot_server) == IS_ARRAY && !(HT_FLAGS(Z_ARRVAL(boot_server)) & HASH_FLAG_PACKED)) {
		/* Its copies have room for the variables of a request. */
		zend_hash_extend(Z_ARRVAL(boot_server), zend_hash_num_elements(Z_ARRVAL(boot_server)) + VARIABLES, 0);
	}
	take(&boot_environment, ZEND_STRL("_ENV"));
}

int howdah_superglobals_add_boot_server(zval *array)
{
	HashTable *table = Z_ARRVAL_P(array);

	if (Z_TYPE(boot_server) != IS_ARRAY) {
		return 0;
	}
	if (zend_hash_num_elements(Z_ARRVAL(boot_server)) == 0) {
		return 1;
	}
	/* A copy of the whole table: adding one entry after the other takes several times longer. */
	HashTable *copy = zend_array_dup(Z_ARRVAL(boot_server));
	zend_refcounted_h header = table->gc;
	zend_hash_destroy(table);
	*table = *copy;
	table->gc = header;
	FREE_HASHTABLE(copy);
	return 1;
}

/* $_ENV as the boot left it. PHP's own function would drop the entries that scripts add, such as those of a .env file. */
static void restore_environment(zend_string *name)
{
	zval *array = &PG(http_globals)[TRACK_VARS_ENV];

	zval_ptr_dtor_nogc(array);
	ZVAL_ARR(array, zend_array_dup(Z_ARRVAL(boot_environment)));
	Z_ADDREF_P(array);
	zend_hash_update(&EG(symbol_table), name, array);
}

void howdah_superglobals_refresh(void)
{
	zend_auto_global *global;
	zval *files = &PG(http_globals)[TRACK_VARS_FILES];

	/* PHP fills $_FILES while it reads the body for $_POST, and keeps an array that is there. */
	zval_ptr_dtor_nogc(files);
	ZVAL_UNDEF(files);
	ZEND_HASH_FOREACH_PTR(CG(auto_globals), global) {
		bool is_pending = global->jit && global->armed;

		if (is_pending || !global->auto_global_callback) {
			continue;
		}
		if (Z_TYPE(boot_environment) == IS_ARRAY && zend_string_equals_literal(global->name, "_ENV")) {
			restore_environment(global->name);
		} else {
			global->armed = global->auto_global_callback(global->name);
		}
	} ZEND_HASH_FOREACH_END();
	howdah_variables_keep_table();
}

static void replace(int track, const char *name, size_t len, const zval *boot)
{
	zval *array = &PG(http_globals)[track];

	if (!zend_hash_str_exists(&EG(symbol_table), name, len)) {
		return;
	}
	zval_ptr_dtor_nogc(array);
	if (boot && Z_TYPE_P(boot) == IS_ARRAY) {
		ZVAL_ARR(array, zend_array_dup(Z_ARRVAL_P(boot)));
	} else {
		array_init(array);
	}
	Z_ADDREF_P(array);
	zend_hash_str_update(&EG(symbol_table), name, len, array);
}

/* The functions that fill superglobals would leave a copy with ext/filter, which a request must end. */
void howdah_superglobals_release(void)
{
	replace(TRACK_VARS_GET, ZEND_STRL("_GET"), NULL);
	replace(TRACK_VARS_POST, ZEND_STRL("_POST"), NULL);
	replace(TRACK_VARS_COOKIE, ZEND_STRL("_COOKIE"), NULL);
	replace(TRACK_VARS_FILES, ZEND_STRL("_FILES"), NULL);
	replace(TRACK_VARS_SERVER, ZEND_STRL("_SERVER"), &boot_server);
	howdah_variables_forget_table();
	if (zend_hash_str_exists(&EG(symbol_table), ZEND_STRL("_REQUEST"))) {
		zval empty;
		array_init(&empty);
		zend_hash_str_update(&EG(symbol_table), ZEND_STRL("_REQUEST"), &empty);
	}
}

/* The session module releases the session's variables, but not this entry. */
void howdah_superglobals_forget_session(void)
{
	zend_hash_str_del(&EG(symbol_table), ZEND_STRL("_SESSION"));
}

/* A stream php://input that a script keeps reads from the body's stream, and does not own it. */
void howdah_superglobals_close_body(php_stream *body)
{
	zend_resource *resource;

	if (!body) {
		return;
	}
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		php_stream *stream = resource->type == php_file_le_stream() ? resource->ptr : NULL;
		if (stream && stream->ops->label && strcmp(stream->ops->label, "Input") == 0) {
			zend_list_close(resource);
		}
	} ZEND_HASH_FOREACH_END();
	php_stream_close(body);
}
