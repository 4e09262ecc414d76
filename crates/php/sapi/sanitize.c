/* The build of `make sanitize` only: the options of AddressSanitizer and UndefinedBehaviorSanitizer, and changes without
 * which PHP does not run under them. The options are compiled in, because the processes of an application do not get the
 * environment of make. The sanitizers write each report to a file of its own and end the process. */

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define ASAN_REPORTS HOWDAH_SANITIZE_REPORTS "/asan"
#define UBSAN_REPORTS HOWDAH_SANITIZE_REPORTS "/ubsan"

const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

/* PHP keeps memory until the process exits: leaks are not reported. Crashes must stay crashes, and are not reported. A test
 * preloads a library that changes the clock: the link order is not checked. */
const char *__asan_default_options(void)
{
	return "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0"
		":verify_asan_link_order=0:log_path=" ASAN_REPORTS;
}

const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1";
}

/* libubsan applies its log_path with a function that AddressSanitizer has, too: it would set AddressSanitizer's path. */
__attribute__((constructor)) static void set_path_of_ubsan_reports(void)
{
	void *ubsan = dlopen("libubsan.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void (*set_report_path)(const char *);

	*(void **) &set_report_path = ubsan ? dlsym(ubsan, "__sanitizer_set_report_path") : NULL;
	if (!set_report_path) {
		abort();
	}
	set_report_path(UBSAN_REPORTS);
}

/* AddressSanitizer does not see the blocks of PHP's own allocator, and malloc() has no memory_limit. Thus scripts/sanitize
 * tests both allocators: with the file use-malloc in the folder of the reports, PHP uses malloc(). */
__attribute__((constructor)) static void choose_allocator(void)
{
	if (access(HOWDAH_SANITIZE_REPORTS "/use-malloc", F_OK) == 0) {
		setenv("USE_ZEND_ALLOC", "0", 1);
	}
}

/* PHP opens its extensions with RTLD_DEEPBIND. Such an extension would call the C library's malloc() and free() instead of
 * AddressSanitizer's, which therefore ends the process. libphp finds this function first: the executable precedes the C
 * library and AddressSanitizer in the search order. */
void *dlopen(const char *file, int mode)
{
	void *(*next)(const char *, int);

	*(void **) &next = dlsym(RTLD_NEXT, "dlopen");
	return next(file, mode & ~RTLD_DEEPBIND);
}
