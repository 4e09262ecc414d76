/* Options of AddressSanitizer and UndefinedBehaviorSanitizer, for the build of `make sanitize` only. They are compiled in,
 * because the processes of an application do not get the environment of make. */

/* PHP keeps memory until the process exits: leaks are not reported. Crashes must stay crashes, and are not reported. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void)
{
	return "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0"
		":log_path=" HOWDAH_SANITIZE_REPORTS "/asan";
}

const char *__ubsan_default_options(void)
{
	return "print_stacktrace=1:log_path=" HOWDAH_SANITIZE_REPORTS "/ubsan";
}
