/* PHP's stack as names.
 *
 * PHP's thread reads its own memory directly. Another thread reads with process_vm_readv(2), which fails where nothing is
 * mapped. The other thread may see values that are half changed. Therefore lengths and depth are bounded, and a pointer is
 * only an address to read from. */

#include "samples/backtrace.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME_BYTES 256

typedef int (*reader)(void *to, const void *from, size_t len);

static pid_t own_pid;
/* The file in /proc that shows what PHP's thread waits for: the number of the system call, or the kernel's function. */
static int wait_file = -1;
static int wait_is_a_number;

/* ---- reading ---- */

static int read_own(void *to, const void *from, size_t len)
{
	if (!from) {
		return 0;
	}
	memcpy(to, from, len);
	return 1;
}

int howdah_peek(void *to, const void *from, size_t len)
{
	struct iovec local = { to, len }, remote = { (void *) from, len };

	return from && process_vm_readv(own_pid, &local, 1, &remote, 1, 0) == (ssize_t) len;
}

/* Reads a string. Of one that is too long it keeps the start, or with `the_end` the end, which matters in a path. The text
 * ends at a NUL: PHP puts one before the internal part of an anonymous class's name. */
static void read_string(reader read, char *out, size_t room, const zend_string *from, int the_end)
{
	size_t len, skip = 0;

	out[0] = '\0';
	if (!from) {
		return;
	}
	if (read != read_own) {
		/* Usually the memory behind it is mapped, and one system call is enough. */
		char whole[offsetof(zend_string, val) + NAME_BYTES];
		if (room <= NAME_BYTES && read(whole, from, sizeof(whole))) {
			memcpy(&len, whole + offsetof(zend_string, len), sizeof(len));
			if (len < room) {
				memcpy(out, whole + offsetof(zend_string, val), len);
				out[len] = '\0';
				return;
			}
		}
	}
	if (!read(&len, &from->len, sizeof(len)) || len > 1 << 20) {
		return;
	}
	if (len >= room) {
		skip = the_end ? len - room + 1 : 0;
		len = room - 1;
	}
	if (!read(out, from->val + skip, len)) {
		len = 0;
	}
	out[len] = '\0';
}

/* Whether it is the frame that was read before at this depth: a thread that waits has the same frames in each sample. */
static int is_known(const struct howdah_frame *frame, const zend_execute_data *data, const zend_function *head,
	const zend_string *file)
{
	return ZEND_USER_CODE(head->common.type) && frame->from == data->func && frame->at == data->opline
		&& frame->name == head->common.function_name && frame->scope == head->common.scope && frame->of_file == file;
}

static void read_frame(reader read, struct howdah_frame *frame, const zend_execute_data *data, int may_be_known)
{
	const zend_function *from = data->func;
	zend_string *class_name = NULL, *file = NULL;
	zend_function head;
	zend_op opline;

	/* Functions of both kinds begin with the same fields. */
	if (!read(&head.common, &from->common, sizeof(head.common))
		|| (ZEND_USER_CODE(head.common.type) && !read(&file, &from->op_array.filename, sizeof(file)))) {
		frame->function[0] = frame->class_name[0] = frame->file[0] = '\0';
		frame->from = NULL;
		return;
	}
	if (may_be_known && is_known(frame, data, &head, file)) {
		return;
	}
	frame->function[0] = frame->class_name[0] = frame->file[0] = '\0';
	frame->line = 0;
	read_string(read, frame->function, sizeof(frame->function), head.common.function_name, 0);
	if (head.common.scope && read(&class_name, &head.common.scope->name, sizeof(class_name))) {
		read_string(read, frame->class_name, sizeof(frame->class_name), class_name, 0);
	}
	if (ZEND_USER_CODE(head.common.type)) {
		read_string(read, frame->file, sizeof(frame->file), file, 1);
		if (read(&opline, data->opline, sizeof(opline))) {
			frame->line = opline.lineno;
		}
		if (!frame->function[0]) {
			strcpy(frame->function, data->prev_execute_data ? "{include}" : "{main}");
		}
	}
	frame->from = from;
	frame->at = data->opline;
	frame->name = head.common.function_name;
	frame->scope = head.common.scope;
	frame->of_file = file;
}

static void walk(reader read, struct howdah_backtrace *backtrace, const zend_execute_data *at)
{
	zend_execute_data data;

	backtrace->depth = backtrace->is_cut = 0;
	backtrace->waits_in[0] = '\0';
	/* Frames without a function are internal: of generators, and of the start. */
	for (int frames = 0; at && read(&data, at, sizeof(data)); at = data.prev_execute_data) {
		if (backtrace->depth == HOWDAH_FRAMES || ++frames > 4 * HOWDAH_FRAMES) {
			backtrace->is_cut = 1;
			return;
		}
		if (data.func) {
			struct howdah_frame *frame = &backtrace->frames[backtrace->depth];
			read_frame(read, frame, &data, backtrace->depth < backtrace->known);
			if (backtrace->known <= backtrace->depth) {
				backtrace->known = backtrace->depth + 1;
			}
			/* Internal functions without a name do nothing: they represent constructors that do not exist. */
			backtrace->depth += frame->function[0] != '\0';
		}
	}
}

void howdah_backtrace_forget(struct howdah_backtrace *backtrace)
{
	backtrace->known = 0;
}

/* ---- the thread that runs PHP ---- */

void howdah_backtrace_own(struct howdah_backtrace *backtrace, zend_execute_data *top)
{
	walk(read_own, backtrace, top);
}

static int open_of_task(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%ld/%s", (long) syscall(SYS_gettid), name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* The system call is readable only by the owner of the process in the kernel's sense, which a process that has changed its
 * user is not. The kernel's function is readable by all. Neither is readable in a rootfs without /proc. */
void howdah_backtrace_remember_thread(void)
{
	own_pid = getpid();
	wait_file = open_of_task("syscall");
	wait_is_a_number = wait_file >= 0;
	if (wait_file < 0) {
		wait_file = open_of_task("wchan");
	}
}

/* ---- another thread ---- */

static zend_execute_data *current(void)
{
	return __atomic_load_n(&EG(current_execute_data), __ATOMIC_ACQUIRE);
}

int howdah_is_in_internal_function(void)
{
	zend_execute_data data;
	uint8_t type;

	return howdah_peek(&data, current(), sizeof(data)) && data.func
		&& howdah_peek(&type, &data.func->type, sizeof(type)) && type == ZEND_INTERNAL_FUNCTION;
}

static const char *name_of_system_call(long number)
{
	static const struct { long number; const char *name; } names[] = {
#ifdef SYS_poll
		{ SYS_poll, "poll" }, { SYS_select, "select" }, { SYS_pause, "pause" }, { SYS_epoll_wait, "epoll_wait" },
		{ SYS_open, "open" }, { SYS_stat, "stat" }, { SYS_lstat, "lstat" }, { SYS_unlink, "unlink" },
		{ SYS_rename, "rename" }, { SYS_mkdir, "mkdir" }, { SYS_rmdir, "rmdir" }, { SYS_getdents64, "getdents64" },
#endif
		{ SYS_ppoll, "ppoll" }, { SYS_pselect6, "pselect6" }, { SYS_epoll_pwait, "epoll_pwait" },
		{ SYS_nanosleep, "nanosleep" }, { SYS_clock_nanosleep, "clock_nanosleep" }, { SYS_futex, "futex" },
		{ SYS_read, "read" }, { SYS_readv, "readv" }, { SYS_pread64, "pread64" }, { SYS_write, "write" },
		{ SYS_writev, "writev" }, { SYS_pwrite64, "pwrite64" }, { SYS_recvfrom, "recvfrom" }, { SYS_recvmsg, "recvmsg" },
		{ SYS_sendto, "sendto" }, { SYS_sendmsg, "sendmsg" }, { SYS_connect, "connect" }, { SYS_accept, "accept" },
		{ SYS_accept4, "accept4" }, { SYS_wait4, "wait4" }, { SYS_waitid, "waitid" }, { SYS_flock, "flock" },
		{ SYS_fcntl, "fcntl" }, { SYS_fsync, "fsync" }, { SYS_fdatasync, "fdatasync" }, { SYS_openat, "openat" },
		{ SYS_newfstatat, "newfstatat" }, { SYS_unlinkat, "unlinkat" }, { SYS_renameat2, "renameat2" },
		{ SYS_sendfile, "sendfile" }, { SYS_splice, "splice" }, { SYS_copy_file_range, "copy_file_range" },
		{ SYS_semop, "semop" }, { SYS_semtimedop, "semtimedop" }, { SYS_msgrcv, "msgrcv" }, { SYS_msgsnd, "msgsnd" },
		{ SYS_rt_sigtimedwait, "rt_sigtimedwait" }, { SYS_rt_sigsuspend, "rt_sigsuspend" }, { SYS_madvise, "madvise" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].number == number) {
			return names[i].name;
		}
	}
	return NULL;
}

static void read_wait(char *out, size_t room)
{
	char text[64];
	ssize_t len = wait_file < 0 ? 0 : pread(wait_file, text, sizeof(text) - 1, 0);

	out[0] = '\0';
	text[len > 0 ? len : 0] = '\0';
	if (len <= 0 || (wait_is_a_number ? text[0] < '0' || text[0] > '9' : text[0] == '0')) {
		/* It runs, or the kernel does not show it. */
		return;
	}
	if (!wait_is_a_number) {
		snprintf(out, room, "%.31s", text);
		return;
	}
	long number = strtol(text, NULL, 10);
	const char *name = name_of_system_call(number);
	if (name) {
		snprintf(out, room, "%s", name);
	} else {
		snprintf(out, room, "system call %ld", number);
	}
}

int howdah_backtrace_foreign(struct howdah_backtrace *backtrace)
{
	zend_execute_data before, after, *top = current();

	if (!howdah_peek(&before, top, sizeof(before))) {
		/* No script runs: PHP starts or ends the request. */
		backtrace->depth = backtrace->is_cut = 0;
		read_wait(backtrace->waits_in, sizeof(backtrace->waits_in));
		return current() == top;
	}
	walk(howdah_peek, backtrace, top);
	read_wait(backtrace->waits_in, sizeof(backtrace->waits_in));
	int stayed = current() == top && howdah_peek(&after, top, sizeof(after)) && after.func == before.func
		&& after.prev_execute_data == before.prev_execute_data;
	if (!stayed) {
		/* The frames may be wrong: PHP changed them at the same time. */
		howdah_backtrace_forget(backtrace);
	}
	return stayed;
}
