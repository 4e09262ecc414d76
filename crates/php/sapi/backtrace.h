/* PHP's stack as names, read by its own thread or, with care, by another one. */
#ifndef HOWDAH_BACKTRACE_H
#define HOWDAH_BACKTRACE_H

#include "php.h"

#define HOWDAH_FRAMES 100

struct howdah_frame {
	char function[128];
	/* Empty if it has none. */
	char class_name[128];
	/* Empty for a function of PHP's own. The end of a path that is too long. */
	char file[256];
	uint32_t line;
	/* What it was read of. */
	const zend_function *from;
	const zend_op *at;
	const zend_string *name, *of_file;
	const zend_class_entry *scope;
};

struct howdah_backtrace {
	/* The innermost comes first. */
	struct howdah_frame frames[HOWDAH_FRAMES];
	int depth;
	/* So many frames have been read since it was forgotten, deeper ones included. */
	int known;
	/* There are more frames. */
	int is_cut;
	/* The system call that PHP sits in, or the kernel's function, as far as the kernel says so; otherwise empty. */
	char waits_in[32];
};

/* At the beginning of each request: what lay in some place is not there any more. */
void howdah_backtrace_forget(struct howdah_backtrace *backtrace);
/* By PHP's thread, at a safe point. */
void howdah_backtrace_own(struct howdah_backtrace *backtrace, zend_execute_data *top);
/* By another thread. What is not there any more ends it. 0: PHP moved on meanwhile. */
int howdah_backtrace_foreign(struct howdah_backtrace *backtrace);
/* Whether PHP's thread is in a function of PHP's own, such as sleep() or preg_match(): it comes to no safe point before
 * that returns. */
int howdah_is_in_internal_function(void);
/* Reads memory that may have been freed or unmapped. */
int howdah_peek(void *to, const void *from, size_t len);
/* By another thread: what PHP's thread, which is this one, waits for. */
void howdah_backtrace_remember_thread(void);

#endif
