/* Session handlers. */
#include "worker_mode/baseline/parts.h"
#include "php.h"
#include "ext/session/php_session.h"

/* Since PHP 8.4 each name is a member of its own. In all versions they are zvals in a row. */
#define NAMES(globals) ((zval *) &(globals)->mod_user_names)
#define NAME_COUNT (sizeof(((php_ps_globals *) NULL)->mod_user_names) / sizeof(zval))

/* The handlers that the boot has set with session_set_save_handler(). The module releases them after each request. */
static struct {
	int is_set;
	int is_implemented;
	zval names[NAME_COUNT];
	zend_string *class_name;
} boot_sessions;

void howdah_take_sessions(void)
{
	php_ps_globals *globals = howdah_globals_of("session");

	for (size_t i = 0; globals && i < NAME_COUNT; i++) {
		ZVAL_COPY(&boot_sessions.names[i], &NAMES(globals)[i]);
		boot_sessions.is_set |= Z_TYPE(boot_sessions.names[i]) != IS_UNDEF;
	}
	if (globals && boot_sessions.is_set) {
		boot_sessions.is_implemented = globals->mod_user_implemented;
		boot_sessions.class_name = globals->mod_user_class_name ? zend_string_copy(globals->mod_user_class_name) : NULL;
	}
}

void howdah_restore_sessions(void)
{
	php_ps_globals *globals = boot_sessions.is_set ? howdah_globals_of("session") : NULL;

	if (!globals) {
		return;
	}
	for (size_t i = 0; i < NAME_COUNT; i++) {
		zval_ptr_dtor(&NAMES(globals)[i]);
		ZVAL_COPY(&NAMES(globals)[i], &boot_sessions.names[i]);
	}
	globals->mod_user_implemented = boot_sessions.is_implemented;
	if (globals->mod_user_class_name) {
		zend_string_release(globals->mod_user_class_name);
	}
	globals->mod_user_class_name = boot_sessions.class_name ? zend_string_copy(boot_sessions.class_name) : NULL;
}
