/* Session handlers. */
#include "worker_mode/baseline/parts.h"
#include "php.h"
#include "ext/session/php_session.h"

/* The handlers that the boot has set with session_set_save_handler(). The module releases them after each request. */
static struct {
	int is_set;
	int is_implemented;
	zval names[PS_NUM_APIS];
	zend_string *class_name;
} boot_sessions;

void howdah_take_sessions(void)
{
	php_ps_globals *globals = howdah_globals_of("session");

	for (int i = 0; globals && i < PS_NUM_APIS; i++) {
		ZVAL_COPY(&boot_sessions.names[i], &globals->mod_user_names.names[i]);
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
	for (int i = 0; i < PS_NUM_APIS; i++) {
		zval_ptr_dtor(&globals->mod_user_names.names[i]);
		ZVAL_COPY(&globals->mod_user_names.names[i], &boot_sessions.names[i]);
	}
	globals->mod_user_implemented = boot_sessions.is_implemented;
	if (globals->mod_user_class_name) {
		zend_string_release(globals->mod_user_class_name);
	}
	globals->mod_user_class_name = boot_sessions.class_name ? zend_string_copy(boot_sessions.class_name) : NULL;
}
