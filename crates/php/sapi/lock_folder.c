/* The folder of opcache's lock file, if no php.ini and no option names one. opcache ends the process if it cannot create the
 * file, so the reason is written to stderr before it starts. */

#include "howdah_sapi.h"
#include "php.h"
#include "php_ini.h"
#include "zend_extensions.h"
#include "zend_ini.h"

#define SETTING "opcache.lockfile_path"

static const char *lock_folder;
static const char *lock_folder_problem;

/* One of the two is NULL. `problem` is a line for stderr. Both stay with PHP. */
void howdah_lock_folder_set(const char *folder, const char *problem)
{
	lock_folder = folder;
	lock_folder_problem = problem;
}

/* PHP calls this before it reads any php.ini, whose value replaces this one. */
void howdah_lock_folder_default(HashTable *configuration)
{
	zval value;

	if (lock_folder) {
		ZVAL_NEW_STR(&value, zend_string_init(lock_folder, strlen(lock_folder), 1));
		zend_hash_str_update(configuration, SETTING, sizeof(SETTING) - 1, &value);
	}
}

static int needs_lock_folder(void)
{
#if PHP_VERSION_ID >= 80300 && defined(HAVE_MEMFD_CREATE)
	/* The lock file is in memory. */
	return 0;
#else
	zval *enable = cfg_get_entry("opcache.enable", sizeof("opcache.enable") - 1);
	int is_on = !enable || Z_TYPE_P(enable) != IS_STRING || zend_ini_parse_bool(Z_STR_P(enable));

	return is_on && zend_get_extension("Zend OPcache") && !cfg_get_entry(SETTING, sizeof(SETTING) - 1);
#endif
}

/* All settings are read, and opcache has not started. */
void howdah_lock_folder_check(void)
{
	if (lock_folder_problem && needs_lock_folder()) {
		fprintf(stderr, "%s\n", lock_folder_problem);
	}
}
