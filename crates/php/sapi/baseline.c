/* The state of PHP at the end of a worker script's boot, and how it is restored after each request.
 *
 * It is the state that PHP itself resets at the end of a classic request, as far as a request can see what the one before
 * has left: settings, handlers of errors and exceptions, shutdown and tick functions, stream wrappers, session handlers, the
 * default stream context, timezone, locale, folder, umask, environment, random seeds. The state that the boot has set stays.
 *
 * Most requests change none of it. Each part is compared first, and the comparison makes no system call. */

#include "baseline.h"
#include "howdah_sapi.h"
#include "wrap.h"
#include "php_globals.h"
#include "php_ticks.h"
#include "zend_ini.h"
#include "zend_stack.h"
#include "ext/date/php_date.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/file.h"
#include "ext/standard/php_filestat.h"
#include <fcntl.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

static void *globals_of(const char *name)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, name, strlen(name));

	return module ? module->globals_ptr : NULL;
}

/* ---- settings ---- */

/* The settings that the boot has changed, with their values. */
static HashTable boot_settings;

static void take_settings(void)
{
	zend_string *name;
	zend_ini_entry *entry;

	zend_hash_init(&boot_settings, 0, NULL, NULL, 0);
	if (EG(modified_ini_directives)) {
		ZEND_HASH_FOREACH_STR_KEY_PTR(EG(modified_ini_directives), name, entry) {
			zval value;
			ZVAL_NULL(&value);
			if (entry->value) {
				ZVAL_STR_COPY(&value, entry->value);
			}
			zend_hash_add(&boot_settings, name, &value);
		} ZEND_HASH_FOREACH_END();
	}
}

static void set(zend_string *name, zval *value)
{
	zend_string *string = Z_TYPE_P(value) == IS_STRING ? Z_STR_P(value) : ZSTR_EMPTY_ALLOC();

	zend_alter_ini_entry_ex(name, string, ZEND_INI_SYSTEM, ZEND_INI_STAGE_DEACTIVATE, 1);
}

static void restore_settings(void)
{
	zend_string *name;
	zend_ini_entry *entry;
	zval *value;

	if (!EG(modified_ini_directives)) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_PTR(EG(modified_ini_directives), name, entry) {
		value = zend_hash_find(&boot_settings, name);
		if (!value) {
			zend_restore_ini_entry(name, ZEND_INI_STAGE_DEACTIVATE);
		} else if (entry->value != (Z_TYPE_P(value) == IS_STRING ? Z_STR_P(value) : NULL)) {
			set(name, value);
		}
	} ZEND_HASH_FOREACH_END();
	/* The request has called ini_restore(). */
	if (zend_hash_num_elements(EG(modified_ini_directives)) < zend_hash_num_elements(&boot_settings)) {
		ZEND_HASH_FOREACH_STR_KEY_VAL(&boot_settings, name, value) {
			if (!zend_hash_exists(EG(modified_ini_directives), name)) {
				set(name, value);
			}
		} ZEND_HASH_FOREACH_END();
	}
}

/* ---- handlers of errors and exceptions ---- */

/* The handlers, the current one last, and for error handlers their levels. */
struct handlers {
	zval *current;
	zend_stack *former;
	int *current_level;
	zend_stack *former_levels;
	int count;
	zval *kept;
	int *kept_levels;
};

static struct handlers error_handlers, exception_handlers;

static zval *handler_at(const struct handlers *handlers, int index)
{
	return index < zend_stack_count(handlers->former) ? (zval *) zend_stack_base(handlers->former) + index
		: handlers->current;
}

static int level_at(const struct handlers *handlers, int index)
{
	return index < zend_stack_count(handlers->former_levels) ? ((int *) zend_stack_base(handlers->former_levels))[index]
		: *handlers->current_level;
}

static void take_handlers(struct handlers *handlers)
{
	handlers->count = zend_stack_count(handlers->former) + 1;
	handlers->kept = safe_emalloc(handlers->count, sizeof(zval), 0);
	handlers->kept_levels = safe_emalloc(handlers->count, sizeof(int), 0);
	for (int i = 0; i < handlers->count; i++) {
		ZVAL_COPY(&handlers->kept[i], handler_at(handlers, i));
		handlers->kept_levels[i] = handlers->current_level ? level_at(handlers, i) : 0;
	}
}

static bool are_changed(const struct handlers *handlers)
{
	if (zend_stack_count(handlers->former) + 1 != handlers->count) {
		return true;
	}
	for (int i = 0; i < handlers->count; i++) {
		zval *now = handler_at(handlers, i), *kept = &handlers->kept[i];
		if (Z_TYPE_P(now) != Z_TYPE_P(kept) || (Z_REFCOUNTED_P(now) && Z_COUNTED_P(now) != Z_COUNTED_P(kept))) {
			return true;
		}
		/* A function's name may be one interned string or another. */
		if (Z_TYPE_P(now) == IS_STRING && Z_STR_P(now) != Z_STR_P(kept)) {
			return true;
		}
		if (handlers->current_level && level_at(handlers, i) != handlers->kept_levels[i]) {
			return true;
		}
	}
	return false;
}

static void restore_handlers(struct handlers *handlers)
{
	if (!are_changed(handlers)) {
		return;
	}
	/* A destructor may run: first the new state, then the old handlers are released. */
	int count = zend_stack_count(handlers->former) + 1;
	zval *old = safe_emalloc(count, sizeof(zval), 0);
	for (int i = 0; i < count; i++) {
		ZVAL_COPY_VALUE(&old[i], handler_at(handlers, i));
	}
	while (!zend_stack_is_empty(handlers->former)) {
		zend_stack_del_top(handlers->former);
	}
	while (handlers->former_levels && !zend_stack_is_empty(handlers->former_levels)) {
		zend_stack_del_top(handlers->former_levels);
	}
	for (int i = 0; i < handlers->count; i++) {
		zval kept;
		bool is_current = i == handlers->count - 1;
		ZVAL_COPY(&kept, &handlers->kept[i]);
		if (is_current) {
			ZVAL_COPY_VALUE(handlers->current, &kept);
		} else {
			zend_stack_push(handlers->former, &kept);
		}
		if (handlers->current_level && is_current) {
			*handlers->current_level = handlers->kept_levels[i];
		} else if (handlers->current_level) {
			zend_stack_push(handlers->former_levels, &handlers->kept_levels[i]);
		}
	}
	for (int i = 0; i < count; i++) {
		zval_ptr_dtor(&old[i]);
	}
	efree(old);
}

/* ---- shutdown and tick functions ---- */

static HashTable *boot_shutdown_functions;
static size_t boot_tick_functions;

static void take_functions(void)
{
	boot_shutdown_functions = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
	boot_tick_functions = BG(user_tick_functions) ? zend_llist_count(BG(user_tick_functions)) : 0;
}

static void restore_functions(void)
{
	while (BG(user_tick_functions) && zend_llist_count(BG(user_tick_functions)) > boot_tick_functions) {
		zend_llist_remove_tail(BG(user_tick_functions));
	}
}

void howdah_baseline_end(void)
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

/* ---- streams ---- */

/* The wrappers by their protocols; empty if the boot has changed none. */
static HashTable boot_wrappers;
static php_stream_context *boot_context;
static zval boot_context_options;

static HashTable *wrappers_of_boot(void)
{
	return zend_hash_num_elements(&boot_wrappers) > 0 ? &boot_wrappers : php_stream_get_url_stream_wrappers_hash_global();
}

static void take_streams(void)
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

static int restore_wrappers(void)
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

static void restore_context(void)
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

/* ---- sessions ---- */

/* The handlers that the boot has set with session_set_save_handler(). The module releases them after each request. */
static struct {
	int is_set;
	int is_implemented;
	zval names[PS_NUM_APIS];
	zend_string *class_name;
} boot_sessions;

static void take_sessions(void)
{
	php_ps_globals *globals = globals_of("session");

	for (int i = 0; globals && i < PS_NUM_APIS; i++) {
		ZVAL_COPY(&boot_sessions.names[i], &globals->mod_user_names.names[i]);
		boot_sessions.is_set |= Z_TYPE(boot_sessions.names[i]) != IS_UNDEF;
	}
	if (globals && boot_sessions.is_set) {
		boot_sessions.is_implemented = globals->mod_user_implemented;
		boot_sessions.class_name = globals->mod_user_class_name ? zend_string_copy(globals->mod_user_class_name) : NULL;
	}
}

static void restore_sessions(void)
{
	php_ps_globals *globals = boot_sessions.is_set ? globals_of("session") : NULL;

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

/* ---- the process ---- */

static zif_handler chdir_of_php, putenv_of_php;
static int has_moved, has_changed_environment;
static int boot_folder = -1;
static char *boot_locale;
static zend_string *boot_ctype;
static char *boot_timezone;
/* The variables that the boot has set with putenv(), as NAME → VALUE. */
static HashTable boot_environment;

static ZEND_NAMED_FUNCTION(note_chdir)
{
	has_moved = 1;
	chdir_of_php(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_NAMED_FUNCTION(note_putenv)
{
	has_changed_environment = 1;
	putenv_of_php(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void howdah_baseline_watch(void)
{
	howdah_wrap("chdir", note_chdir, &chdir_of_php);
	howdah_wrap("putenv", note_putenv, &putenv_of_php);
}

static void take_process(void)
{
	zend_date_globals *date = globals_of("date");
	zend_string *name;

	boot_timezone = date && date->timezone ? estrdup(date->timezone) : NULL;
	boot_locale = strdup(setlocale(LC_ALL, NULL));
	boot_ctype = BG(ctype_string) ? zend_string_copy(BG(ctype_string)) : NULL;
	BG(locale_changed) = 0;
	BG(umask) = -1;
	boot_folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	zend_hash_init(&boot_environment, 0, NULL, ZVAL_PTR_DTOR, 0);
	ZEND_HASH_FOREACH_STR_KEY(&BG(putenv_ht), name) {
		const char *value = name ? getenv(ZSTR_VAL(name)) : NULL;
		zval kept;
		if (value) {
			ZVAL_STRING(&kept, value);
			zend_hash_add(&boot_environment, name, &kept);
		}
	} ZEND_HASH_FOREACH_END();
	has_moved = has_changed_environment = 0;
}

static void restore_timezone(void)
{
	zend_date_globals *date = globals_of("date");

	if (!date || date->timezone == boot_timezone
		|| (date->timezone && boot_timezone && strcmp(date->timezone, boot_timezone) == 0)) {
		return;
	}
	if (date->timezone) {
		efree(date->timezone);
	}
	date->timezone = boot_timezone ? estrdup(boot_timezone) : NULL;
}

static void restore_locale(void)
{
	if (!BG(locale_changed)) {
		return;
	}
	BG(locale_changed) = 0;
	setlocale(LC_ALL, boot_locale);
	zend_update_current_locale();
	if (BG(ctype_string)) {
		zend_string_release(BG(ctype_string));
	}
	BG(ctype_string) = boot_ctype ? zend_string_copy(boot_ctype) : NULL;
}

/* Removing an entry restores the value that the variable had before it. */
static void restore_environment(void)
{
	zend_string *name;
	zval *value;

	if (!has_changed_environment) {
		return;
	}
	has_changed_environment = 0;
	ZEND_HASH_FOREACH_STR_KEY(&BG(putenv_ht), name) {
		if (name && !zend_hash_exists(&boot_environment, name)) {
			zend_hash_del(&BG(putenv_ht), name);
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_STR_KEY_VAL(&boot_environment, name, value) {
		setenv(ZSTR_VAL(name), Z_STRVAL_P(value), 1);
	} ZEND_HASH_FOREACH_END();
}

static void restore_folder(void)
{
	if (has_moved) {
		has_moved = 0;
		php_ignore_value(fchdir(boot_folder));
	}
	if (BG(umask) != -1) {
		umask(BG(umask));
		BG(umask) = -1;
	}
}

/* ---- what one call leaves for the next ---- */

static void forget_last_error(void)
{
	PG(last_error_type) = 0;
	PG(last_error_lineno) = 0;
	if (PG(last_error_message)) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
		PG(last_error_file) = NULL;
	}
}

static void forget_strtok(void)
{
	if (BG(strtok_string)) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
	}
	BG(strtok_last) = NULL;
	BG(strtok_len) = 0;
}

/* ---- all of it ---- */

void howdah_baseline_take(void)
{
	error_handlers = (struct handlers) {
		.current = &EG(user_error_handler), .former = &EG(user_error_handlers),
		.current_level = &EG(user_error_handler_error_reporting),
		.former_levels = &EG(user_error_handlers_error_reporting),
	};
	exception_handlers = (struct handlers) {
		.current = &EG(user_exception_handler), .former = &EG(user_exception_handlers),
	};
	take_settings();
	take_handlers(&error_handlers);
	take_handlers(&exception_handlers);
	take_functions();
	take_streams();
	take_sessions();
	take_process();
}

int howdah_baseline_restore(void)
{
	volatile int is_restored = 0;

	/* A destructor may end with a fatal error. */
	zend_try {
		restore_handlers(&error_handlers);
		restore_handlers(&exception_handlers);
		restore_functions();
		restore_context();
		restore_sessions();
		is_restored = restore_wrappers();
		restore_settings();
		restore_timezone();
		restore_locale();
		restore_environment();
		restore_folder();
		forget_last_error();
		forget_strtok();
		php_clear_stat_cache(0, NULL, 0);
		howdah_forget_mt_seed();
		zend_set_memory_limit(PG(memory_limit));
#if PHP_VERSION_ID >= 80200
		zend_memory_reset_peak_usage();
#endif
	} zend_catch {
		is_restored = 0;
	} zend_end_try();
	return is_restored;
}
