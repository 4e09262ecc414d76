/* php.ini settings: a request's ini_set() is undone, and so is its ini_restore() of a setting of the boot. */
#include "worker_mode/baseline/parts.h"
#include "php.h"
#include "zend_ini.h"

/* The settings that the boot has changed, with their values. */
static HashTable boot_settings;

void howdah_take_settings(void)
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

void howdah_restore_settings(void)
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
