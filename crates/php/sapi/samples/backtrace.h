/* PHP's stack as names, read by PHP's own thread or, with care, by another thread. */
#ifndef HOWDAH_BACKTRACE_H
#define HOWDAH_BACKTRACE_H

#include "php.h"

#define HOWDAH_FRAMES 100

struct howdah_frame {
	char function[128];
	/* Empty without a class. */
	char class_name[128];
	/* Empty for an internal function of PHP. Of a path that is too long, the end. */
	char file[256];
	uint32_t line;
	/* The addresses that it was read from. */
	const zend_function *from;
	const zend_op *at;
	const zend_string *name, *of_file;
	const zend_class_entry *scope;
};

struct howdah_backtrace {
	/* The innermost frame comes first. */
	struct howdah_frame frames[HOWDAH_FRAMES];
	int depth;
	/* The number of valid entries in `frames`, which may be more than `depth`: see is_known(). */
	int known;
	/* The stack has more frames. */
	int is_cut;
	/* The system call that PHP waits in, or the kernel's function, if the kernel shows it; otherwise empty. */
	char waits_in[32];
};

/* Call it at the start of each request: an address may belong to another function then. */
void howdah_backtrace_forget(struct howdah_backtrace *backtrace);
/* For PHP's thread, at a safe point. */
void howdah_backtrace_own(struct howdah_backtrace *backtrace, zend_execute_data *top);
/* For another thread. Memory that is not mapped any more ends the walk. 0: PHP moved on at the same time. */
int howdah_backtrace_foreign(struct howdah_backtrace *backtrace);
/* Whether PHP's thread is in an internal function, such as sleep() or preg_match(): it reaches no safe point before the
 * function returns. */
int howdah_is_in_internal_function(void);
/* Reads memory that may have been freed or unmapped. */
int howdah_peek(void *to, const void *from, size_t len);
/* Call it in PHP's thread: from now on another thread can read what this thread waits for. */
void howdah_backtrace_remember_thread(void);

#endif
