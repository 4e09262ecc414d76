#include "worker_mode/modules.h"
#include "php.h"

/* Their own end and start of a request replace their data. NULL: the module does not exist. */
static struct {
	const char *name;
	const zend_module_entry *module;
} modules[] = { { .name = "session" }, { .name = "filter" } };

void howdah_modules_find(void)
{
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		modules[i].module = zend_hash_str_find_ptr(&module_registry, modules[i].name, strlen(modules[i].name));
	}
}

void howdah_modules_start(void)
{
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		const zend_module_entry *module = modules[i].module;
		if (module && module->request_startup_func) {
			module->request_startup_func(module->type, module->module_number);
		}
	}
}

static void stop_module(const zend_module_entry *module)
{
	zend_try {
		module->request_shutdown_func(module->type, module->module_number);
	} zend_end_try();
}

void howdah_modules_stop(void)
{
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		const zend_module_entry *module = modules[i].module;
		if (module && module->request_shutdown_func) {
			stop_module(module);
		}
	}
}
