/* Timezone, locale, environment, folder and umask.
 *
 * chdir() and putenv() are wrapped to note that they were called, because a comparison would need system calls. */
#include "worker_mode/baseline/parts.h"
#include "process/wrap.h"
#include "php.h"
#include "ext/date/php_date.h"
#include "ext/standard/basic_functions.h"
#include <fcntl.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

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

void howdah_watch_process(void)
{
	howdah_wrap("chdir", note_chdir, &chdir_of_php);
	howdah_wrap("putenv", note_putenv, &putenv_of_php);
}

void howdah_take_process(void)
{
	zend_date_globals *date = howdah_globals_of("date");
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
	zend_date_globals *date = howdah_globals_of("date");

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

void howdah_restore_process(void)
{
	restore_timezone();
	restore_locale();
	restore_environment();
	restore_folder();
}
