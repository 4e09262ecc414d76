/* .user.ini: per-directory settings, from the document root down to the script's folder, as under CGI and FPM.
 *
 * Each worker parses a folder's file at most once per user_ini.cache_ttl seconds. */

#include "howdah_sapi.h"
#include "php.h"
#include "php_ini.h"
#include "php_main.h"
#include "SAPI.h"
#include <time.h>

struct folder {
	time_t expires;
	HashTable settings;
};

static HashTable folders;
static int ready;

static void free_folder(zval *entry)
{
	struct folder *folder = Z_PTR_P(entry);
	zend_hash_destroy(&folder->settings);
	free(folder);
}

static void activate_folder(const char *path, size_t len)
{
	time_t now = time(NULL);
	struct folder *folder = zend_hash_str_find_ptr(&folders, path, len);

	if (!folder) {
		folder = calloc(1, sizeof(*folder));
		if (!folder) {
			return;
		}
		zend_hash_init(&folder->settings, 0, NULL, config_zval_dtor, 1);
		zend_hash_str_update_ptr(&folders, path, len, folder);
	}
	if (now >= folder->expires) {
		zend_hash_clean(&folder->settings);
		php_parse_user_ini_file(path, PG(user_ini_filename), &folder->settings);
		folder->expires = now + PG(user_ini_cache_ttl);
	}
	if (zend_hash_num_elements(&folder->settings) > 0) {
		php_ini_activate_config(&folder->settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
	}
}

void howdah_activate_user_ini(const char *script_filename, const char *document_root)
{
	char path[MAXPATHLEN];
	const char *last = strrchr(script_filename, '/');
	size_t root_len = document_root ? strlen(document_root) : 0;
	size_t len = last ? (size_t) (last - script_filename) : 0;

	if (!PG(user_ini_filename) || !*PG(user_ini_filename) || !len || len >= sizeof(path)) {
		return;
	}
	if (!ready) {
		zend_hash_init(&folders, 8, NULL, free_folder, 1);
		ready = 1;
	}
	memcpy(path, script_filename, len);
	path[len] = '\0';
	while (root_len && document_root[root_len - 1] == '/') {
		root_len--;
	}
	/* A script outside the document root has only the settings of its own folder. */
	if (!root_len || root_len > len || memcmp(path, document_root, root_len) != 0
		|| (path[root_len] != '/' && path[root_len] != '\0')) {
		activate_folder(path, len);
		return;
	}
	for (size_t at = root_len; at <= len; at++) {
		if (at == len || path[at] == '/') {
			char kept = path[at];
			path[at] = '\0';
			activate_folder(path, at);
			path[at] = kept;
		}
	}
}
