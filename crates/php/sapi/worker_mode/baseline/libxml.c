/* libxml: the stream context, the function that loads external entities, and whether files are loaded at all.
 *
 * PHP's header of this module needs those of libxml2, and the module may be absent: its functions are called by their names, and
 * its symbols are searched. */
#include "worker_mode/baseline/parts.h"
#include "process/wrap.h"
#include "php.h"
#include <dlfcn.h>

/* The beginning of the module's globals, in all versions of PHP. */
struct libxml_globals {
	zval stream_context;
};

static const char set_loader[] = "libxml_set_external_entity_loader";
static zif_handler set_loader_of_php;
/* The values at the end of the boot. The loader is what the boot has passed last: PHP 8.1 has no function that returns it. */
static zval boot_loader, boot_context;
static bool is_boot, loader_is_set;

/* Sets whether no files are loaded. Returns the value before. Its function for scripts is deprecated, and warns. */
static bool (*disable_loader)(bool is_disabled);
static bool boot_disables_loader;

static ZEND_NAMED_FUNCTION(note_loader)
{
	set_loader_of_php(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	loader_is_set = true;
	if (is_boot && !EG(exception) && ZEND_NUM_ARGS() == 1) {
		zval former = boot_loader;
		ZVAL_COPY(&boot_loader, ZEND_CALL_ARG(execute_data, 1));
		zval_ptr_dtor(&former);
	}
}

void howdah_watch_libxml(void)
{
	howdah_wrap(set_loader, note_loader, &set_loader_of_php);
}

void howdah_begin_libxml(void)
{
	is_boot = true;
	ZVAL_NULL(&boot_loader);
	ZVAL_UNDEF(&boot_context);
}

void howdah_take_libxml(void)
{
	const struct libxml_globals *globals = howdah_globals_of("libxml");

	is_boot = loader_is_set = false;
	if (globals && !Z_ISUNDEF(globals->stream_context)) {
		ZVAL_COPY(&boot_context, &globals->stream_context);
	}
	*(void **) &disable_loader = globals ? dlsym(RTLD_DEFAULT, "php_libxml_disable_entity_loader") : NULL;
	if (disable_loader) {
		boot_disables_loader = disable_loader(false);
		disable_loader(boot_disables_loader);
	}
}

static void restore_context(struct libxml_globals *globals)
{
	zval former = globals->stream_context;

	if (Z_ISUNDEF(former) ? Z_ISUNDEF(boot_context) : !Z_ISUNDEF(boot_context) && Z_RES(former) == Z_RES(boot_context)) {
		return;
	}
	/* ZVAL_COPY() is not for an undefined value. */
	ZVAL_COPY_VALUE(&globals->stream_context, &boot_context);
	Z_TRY_ADDREF(globals->stream_context);
	zval_ptr_dtor(&former);
}

static int restore_loader(void)
{
	zval function, result;

	if (!loader_is_set) {
		return 1;
	}
	ZVAL_STRING(&function, set_loader);
	ZVAL_UNDEF(&result);
	call_user_function(NULL, NULL, &function, &result, 1, &boot_loader);
	zval_ptr_dtor(&result);
	zval_ptr_dtor(&function);
	loader_is_set = false;
	return EG(exception) == NULL;
}

int howdah_restore_libxml(void)
{
	struct libxml_globals *globals = howdah_globals_of("libxml");
	int is_restored = restore_loader();

	if (globals) {
		restore_context(globals);
	}
	if (disable_loader) {
		disable_loader(boot_disables_loader);
	}
	return is_restored;
}
